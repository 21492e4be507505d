package access

import (
	"context"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// Decider decides requests: a weir server asked over gRPC, or an engine in this process. Instances with equal settings share
// what is behind it.
type Decider interface {
	// Decide decides within its own deadline. An error means that nobody decided. It must be safe for concurrent use.
	Decide(ctx context.Context, request *ratelimit.Request) (respond.Decision, error)
	// Close is called once, when no decision is under way and none will come.
	Close()
}

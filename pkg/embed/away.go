package embed

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// rarely is the pause between two looks at a store that never comes.
const rarely = 24 * time.Hour

var errAway = errors.New("there is no shared store here")

// away is a store that never decides, so that its guard does.
type away struct{}

var _ engine.Store = away{}

// Take fails every charge.
func (away) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		charges[i].Err = errAway
	}
}

// Reset has nothing to forget.
func (away) Reset(context.Context, []string) error { return nil }

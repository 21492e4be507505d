package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	ratelimitv1 "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// Decider is one user's hold on a shared connection.
type Decider struct {
	pool    *Pool
	shared  *shared
	client  ratelimitv1.RateLimitServiceClient
	timeout time.Duration
	once    sync.Once
}

func newDecider(pool *Pool, shared *shared, timeout time.Duration) *Decider {
	return &Decider{pool: pool, shared: shared, client: ratelimitv1.NewRateLimitServiceClient(shared.conn), timeout: timeout}
}

// Decide asks the server once, and not again: a call that fails may have been counted.
func (d *Decider) Decide(ctx context.Context, request *ratelimit.Request) (respond.Decision, error) {
	if !d.shared.breaker.allow(time.Now()) {
		return respond.Decision{}, ErrPaused
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	reply, err := d.client.CheckRateLimit(ctx, encode(request))
	now := time.Now()
	d.shared.breaker.settle(now, status.Code(err) == codes.DeadlineExceeded)
	if err != nil {
		return respond.Decision{}, fmt.Errorf("weir at %s: %w", d.shared.target.address, err)
	}
	return decode(reply, now), nil
}

// Close gives the connection back; the last one who does closes it.
func (d *Decider) Close() { d.once.Do(func() { d.pool.release(d.shared) }) }

func encode(request *ratelimit.Request) *ratelimitv1.CheckRateLimitRequest {
	out := &ratelimitv1.CheckRateLimitRequest{Domain: request.Domain, Cost: &request.Cost, RequestId: request.ID, RulesOnly: true}
	for i := range request.Descriptors {
		descriptor := &request.Descriptors[i]
		d := &ratelimitv1.Descriptor{Entries: make([]*ratelimitv1.Entry, len(descriptor.Entries))}
		for j, entry := range descriptor.Entries {
			d.Entries[j] = &ratelimitv1.Entry{Key: entry.Key, Value: entry.Value}
		}
		if descriptor.HasCost {
			d.Cost = &descriptor.Cost
		}
		if l := descriptor.Limit; l != nil {
			out.RulesOnly = false // whatever the rules say, this limit counts
			d.Limit = &ratelimitv1.RuleLimit{
				Name: l.Name, Algorithm: l.Algorithm.String(), Limit: l.Count, WindowMs: l.Window.Milliseconds(), Kind: l.Kind.String(),
			}
			if l.Algorithm == ratelimit.TokenBucket || l.Algorithm == ratelimit.LeakyBucket {
				d.Limit.Burst = l.Burst
			}
			if l.Calendar != ratelimit.CalendarNone {
				d.Limit.Calendar = l.WindowName()
			}
		}
		out.Descriptors = append(out.Descriptors, d)
	}
	return out
}

func decode(reply *ratelimitv1.CheckRateLimitResponse, now time.Time) respond.Decision {
	decision := respond.Decision{Denied: !reply.GetAllowed()}
	reached := false
	for _, result := range reply.GetResults() {
		limit := respond.Limit{
			Name: result.GetName(), Count: result.GetLimit(), Window: time.Duration(result.GetWindowMs()) * time.Millisecond,
			Remaining:  result.GetRemaining(),
			ResetAfter: max(0, time.Unix(result.GetResetAt(), 0).Sub(now)),
			RetryAfter: time.Duration(result.GetRetryAfterMs()) * time.Millisecond,
			Denied:     decision.Denied && !result.GetAllowed(),
		}
		if result.GetBurst() != result.GetLimit() {
			limit.Burst = result.GetBurst()
		}
		if result.GetKind() == ratelimit.Quota.String() {
			limit.Kind = ratelimit.Quota
		}
		reached = reached || limit.Denied
		decision.Limits = append(decision.Limits, limit)
	}
	switch {
	case !decision.Denied:
	case reply.GetDegraded():
		decision.Cause = respond.ReducedCapacity
	case !reached:
		decision.Cause = respond.Refused
	}
	return decision
}

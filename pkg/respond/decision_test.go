package respond_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

func TestTightest(t *testing.T) {
	tests := []struct {
		name   string
		limits []respond.Limit
		want   int
	}{
		{"none", nil, -1},
		{"smallest remaining", []respond.Limit{{Remaining: 3}, {Remaining: 1}, {Remaining: 2}}, 1},
		{"denied before a smaller remaining", []respond.Limit{{Remaining: 0}, {Remaining: 4, Denied: true}}, 1},
		{"longest wait of the denied", []respond.Limit{
			{Denied: true, RetryAfter: 1, ResetAfter: 9}, {Denied: true, RetryAfter: 5, Remaining: 2}, {Denied: true, RetryAfter: 2},
		}, 1},
		{"latest reset of equals", []respond.Limit{{ResetAfter: 1}, {ResetAfter: 3}, {ResetAfter: 2}}, 1},
		{"first of equals", []respond.Limit{{Name: "a"}, {Name: "b"}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := respond.Decision{Limits: tt.limits}
			if got := d.Tightest(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	limits := func(waits ...time.Duration) []respond.Limit {
		limits := []respond.Limit{{RetryAfter: time.Hour}} // not denied: does not count
		for _, wait := range waits {
			limits = append(limits, respond.Limit{Denied: true, RetryAfter: wait})
		}
		return limits
	}
	tests := []struct {
		name string
		d    respond.Decision
		want int64
	}{
		{"allowed", respond.Decision{Limits: limits(time.Minute)}, 0},
		{"at least a second", respond.Decision{Denied: true, Limits: limits(0)}, 1},
		{"rounded up", respond.Decision{Denied: true, Limits: limits(2*time.Second + 1)}, 3},
		{"whole", respond.Decision{Denied: true, Limits: limits(2 * time.Second)}, 2},
		{"longest of the denied", respond.Decision{Denied: true, Limits: limits(time.Second, time.Minute, time.Millisecond)}, 60},
		{"waiting does not help", respond.Decision{Denied: true, Cause: respond.Refused, Limits: limits(time.Second)}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.d.RetryAfter(); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	protection := respond.Limit{Denied: true, RetryAfter: time.Second}
	quota := respond.Limit{Denied: true, RetryAfter: time.Hour, Kind: ratelimit.Quota}
	tests := []struct {
		name  string
		d     respond.Decision
		quota int
		want  int
	}{
		{"allowed", respond.Decision{Limits: []respond.Limit{quota}}, 0, 200},
		{"protection", respond.Decision{Denied: true, Limits: []respond.Limit{protection}}, 0, 429},
		{"quota", respond.Decision{Denied: true, Limits: []respond.Limit{quota}}, 0, 402},
		{"quota, configured", respond.Decision{Denied: true, Limits: []respond.Limit{quota}}, 403, 403},
		{"both: what binds longer", respond.Decision{Denied: true, Limits: []respond.Limit{protection, quota}}, 0, 402},
		{"a quota that does not deny", respond.Decision{Denied: true, Limits: []respond.Limit{{Kind: ratelimit.Quota}, protection}}, 0, 429},
		{"no limits", respond.Decision{Denied: true}, 0, 429},
		{"store failed", respond.Decision{Denied: true, Cause: respond.ReducedCapacity}, 0, 503},
		{"rule denies", respond.Decision{Denied: true, Cause: respond.Refused}, 0, 429},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.d.Status(tt.quota); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

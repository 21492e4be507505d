package embed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/embed"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/test/servers"
)

// A charge that a Cluster cannot decide is not Redis's fault: others are counted as before.
func TestCrossSlotIsNotRedissFault(t *testing.T) {
	cluster := servers.Cluster(t)
	e := open(t, embed.Options{Redis: &embed.Redis{Cluster: cluster.Addrs(), Timeout: 20 * time.Second}, OnFailure: ratelimit.FailClosed})
	across := byUser(hourly(4))
	across.Atomic = true
	across.Descriptors = append(across.Descriptors, ratelimit.Descriptor{
		Entries: []ratelimit.Entry{{Key: "user", Value: "bob"}}, Limit: hourly(4),
	})
	for range 20 {
		if got := allowed(t, e, 1, across); got != 0 {
			t.Fatal("a charge across slots was let through")
		}
	}
	if got := allowed(t, e, 10, byUser(hourly(4))); got != 4 {
		t.Errorf("%d passed, want 4", got)
	}
}

// What an embedded engine gives back is announced to those who remember denials.
func TestRefundsAreAnnounced(t *testing.T) {
	server := servers.Redis(t)
	subscription := server.Client().Subscribe(t.Context(), "weir:drop")
	t.Cleanup(func() { _ = subscription.Close() })
	if _, err := subscription.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := open(t, embed.Options{Redis: &embed.Redis{Addr: server.Addr(), Timeout: 20 * time.Second}, KeyPrefix: "weir"})
	request := byUser(hourly(4))
	allowed(t, e, 4, request)
	request.Cost = -1
	if err := e.Decide(t.Context(), &request, func(*engine.Decision) {}); err != nil {
		t.Fatal(err)
	}
	message, err := subscription.ReceiveMessage(t.Context())
	if err != nil || !strings.Contains(message.Payload, "ann") {
		t.Errorf("heard %v, %v", message, err)
	}
}

package xds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirhq/weir/pkg/rules"
)

func TestRulesFollowTheControlPlane(t *testing.T) {
	p := newPlane(t)
	client, into := follow(t, Options{Server: p.address})
	first := receive(t, p.first, "the first request")
	if first.GetTypeUrl() != TypeURL || first.GetVersionInfo() != "" || len(first.GetResourceNames()) != 0 || first.GetNode().GetId() != node {
		t.Errorf("the first request is %v", first)
	}
	if table, _ := into.current(); table != nil {
		t.Error("there are rules before the control plane has said any")
	}
	if err := client.Ready(t.Context()); err != nil {
		t.Errorf("with a stream: %v", err)
	}

	p.set(users("a", 1), users("b/c", 2))
	p.acked(1)
	if into.limit("a", "ann") != 1 || into.limit("b/c", "ann") != 2 {
		t.Error("the first rules are not in force")
	}
	p.set(users("b/c", 3))
	p.acked(2)
	if into.limit("a", "ann") != 0 || into.limit("b/c", "ann") != 3 {
		t.Error("the second rules are not what is in force")
	}
	p.set()
	p.acked(3)
	if table, version := into.current(); table.Len() != 0 || len(table.Domains()) != 0 || version != "3" {
		t.Errorf("an empty list leaves %d rules, version %s", table.Len(), version)
	}
}

func TestRefusedAsAWhole(t *testing.T) {
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	p.set(users("a", 1))
	p.acked(1)

	bad := users("b/c", 2)
	bad.Descriptors[0].Descriptors = []*configpb.RateLimitDescriptor{{Key: "path", Value: "/", RateLimit: &configpb.RateLimitPolicy{RequestsPerUnit: 1}}}
	p.set(users("a", 7), bad)
	refusal := p.nacked()
	contains(t, refusal.GetErrorDetail().GetMessage(), "xds:b/c", `domain "b/c"`, "user|path=/", "rate_limit has no unit")
	if refusal.GetVersionInfo() != "1" || refusal.GetErrorDetail().GetCode() == 0 {
		t.Errorf("the NACK is %v", refusal)
	}
	if into.limit("a", "ann") != 1 {
		t.Error("a part of a refused set is in force")
	}
	p.set(users("a", 8))
	p.acked(3)
	if into.limit("a", "ann") != 8 {
		t.Error("the set after a refused one is not in force")
	}
}

func TestControlPlaneThatComesLate(t *testing.T) {
	p := newPlane(t)
	p.stop()
	client, into := follow(t, Options{Server: p.address})
	eventually(t, "an error that says why", func() bool {
		err := client.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "connection refused")
	})
	if err := client.Ready(t.Context()); !strings.Contains(err.Error(), p.address) {
		t.Errorf("%v does not name the control plane", err)
	}
	p.start(p.address)
	p.set(users("a", 1))
	p.acked(1)
	if into.limit("a", "ann") != 1 || client.Ready(t.Context()) != nil {
		t.Error("a control plane that comes late is not followed")
	}
}

// A control plane that was restarted numbers its versions anew: other rules have the version of those in force.
func TestRestartOfTheControlPlane(t *testing.T) {
	p := newPlane(t)
	client, into := follow(t, Options{Server: p.address})
	p.set(users("a", 1))
	p.acked(1)
	receive(t, p.first, "the first request")

	p.stop()
	eventually(t, "the end of the stream", func() bool { return client.Ready(t.Context()) != nil })
	if into.limit("a", "ann") != 1 {
		t.Error("the rules have gone with the stream")
	}
	p.start(p.address)
	p.set(users("a", 2))
	if again := receive(t, p.first, "the first request of the second stream"); again.GetVersionInfo() != "" || again.GetNode().GetId() != node {
		t.Errorf("the second stream begins with %v", again)
	}
	p.acked(1)
	if into.limit("a", "ann") != 2 {
		t.Error("the rules of before the restart are in force")
	}
}

func TestRapidUpdatesEndAtTheLast(t *testing.T) {
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	receive(t, p.first, "the first request")
	for i := range uint32(100) {
		p.set(users("a", i+1), users("b", 1000-i))
	}
	p.acked(100)
	if into.limit("a", "ann") != 100 || into.limit("b", "ann") != 901 {
		t.Errorf("limits %d and %d, want 100 and 901", into.limit("a", "ann"), into.limit("b", "ann"))
	}
}

func TestUnchangedRulesKeepTheirTable(t *testing.T) {
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	p.set(users("a", 1), users("b", 2))
	p.acked(1)
	before, _ := into.current()
	p.set(users("b", 2), users("a", 1)) // in another order
	p.acked(2)
	if after, version := into.current(); after != before || version != "2" {
		t.Errorf("the same rules were compiled again, or have version %s", version)
	}
	p.set(users("a", 1))
	p.acked(3)
	if after, _ := into.current(); after == before || after.Len() != 1 {
		t.Error("a domain that is gone is still there")
	}
}

func TestDomainsThatAreMerged(t *testing.T) {
	second := &configpb.RateLimitConfig{Name: "second", Domain: "a", Descriptors: []*configpb.RateLimitDescriptor{
		{Key: "user", Value: "bob", RateLimit: &configpb.RateLimitPolicy{Unit: configpb.RateLimitUnit_DAY, RequestsPerUnit: 5}},
	}}
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	p.set(users("a", 1), second)
	contains(t, p.nacked().GetErrorDetail().GetMessage(), `domain "a" is already defined at xds:a`, "merge_domains")
	if table, _ := into.current(); table != nil {
		t.Error("a domain that two resources have is in force")
	}

	q := newPlane(t)
	_, into = follow(t, Options{Server: q.address, Rules: rules.Options{MergeDomains: true}})
	q.set(users("a", 1), second)
	q.acked(1)
	if into.limit("a", "ann") != 1 || into.limit("a", "bob") != 5 {
		t.Error("the two resources are not merged")
	}
}

func TestWhatTheSinkRefuses(t *testing.T) {
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	into.mu.Lock()
	into.refuse = func(table *rules.Table) error {
		if table.Len() > 1 {
			return errors.New("two are too many")
		}
		return nil
	}
	into.mu.Unlock()
	p.set(users("a", 1))
	p.acked(1)
	p.set(users("a", 2), users("b", 2))
	contains(t, p.nacked().GetErrorDetail().GetMessage(), "two are too many")
	p.set(users("a", 3))
	p.acked(3)
	if into.limit("a", "ann") != 3 {
		t.Error("the set after one that the sink refused is not in force")
	}
}

func TestHeadersAndNode(t *testing.T) {
	headers := make(chan metadata.MD, 10)
	p := newPlane(t, grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		headers <- md
		return handler(srv, stream)
	}))
	follow(t, Options{
		Server: p.address, Headers: map[string]string{"Authorization": "Bearer a=b"}, NodeMetadata: map[string]string{"zone": "north", "empty": ""},
	})
	if got := receive(t, headers, "the headers").Get("authorization"); len(got) != 1 || got[0] != "Bearer a=b" {
		t.Errorf("the header is %q", got)
	}
	fields := receive(t, p.first, "the first request").GetNode().GetMetadata().GetFields()
	if len(fields) != 2 || fields["zone"].GetStringValue() != "north" {
		t.Errorf("the node's metadata is %v", fields)
	}
}

// Run ends with its context, whatever it is doing.
func TestRunEnds(t *testing.T) {
	silent := newPlane(t)
	gone := newPlane(t)
	gone.stop()
	refusing := newHostile(t, func(stream adsStream, _ int) error {
		for i := 0; ; i++ {
			if err := stream.Send(&discovery.DiscoveryResponse{TypeUrl: "other", Nonce: fmt.Sprint(i)}); err != nil {
				return err
			}
		}
	})
	for name, address := range map[string]string{"silent": silent.address, "gone": gone.address, "refusing": refusing} {
		client := New(Options{Server: address, NodeID: node, Backoff: Backoff{Initial: time.Hour, Max: time.Hour}, ConnectRetry: time.Hour})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		into := newSink()
		go func() {
			defer close(done)
			client.Run(ctx, into)
		}()
		switch name {
		case "silent":
			receive(t, silent.first, "the first request")
		case "gone":
			eventually(t, "a failure", func() bool { return client.state.Load().err != nil })
		case "refusing":
			eventually(t, "a refusal", func() bool { into.mu.Lock(); defer into.mu.Unlock(); return len(into.refused) > 0 })
		}
		cancel()
		receive(t, done, name+": the end of Run")
	}
}

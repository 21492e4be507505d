package xds

import (
	"testing"

	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
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

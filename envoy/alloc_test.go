package envoy

import (
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// From a call's bytes to its reply's, through the memory store, nothing is left for the garbage collector.
func TestServingAllocatesNothing(t *testing.T) {
	store := memstore.New(memstore.Options{})
	t.Cleanup(store.Close)
	table, err := rules.Compile(rules.Options{}, &rules.Source{Name: "test", Domains: []rules.Domain{{Name: "edge", Descriptors: []rules.Definition{
		{Key: "window", Limits: []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: 5, Window: time.Hour}}},
		{Key: "bucket", Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: 1000, Window: time.Hour}}},
		{Key: "foe", Action: ratelimit.ActionDeny},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	limiter := engine.New(store, engine.Options{})
	limiter.SetTable(table)
	s := New(limiter, Options{})

	override := descriptorOf("other", "x")
	override.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_HOUR}
	var calls []Call
	for _, descriptors := range [][]*commonv3.RateLimitDescriptor{
		{descriptorOf("window", "a")},
		{descriptorOf("bucket", "a"), descriptorOf("window", "b"), descriptorOf("nothing", "here"), descriptorOf("foe", "x")},
		{override},
	} {
		calls = append(calls, Call{Request: marshal(t, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors})})
	}
	w := s.newWork()
	serve := func() {
		for i := range calls {
			calls[i].Reply = calls[i].Reply[:0]
		}
		if !s.serve(t.Context(), calls, w) {
			t.Fatal("a panic")
		}
		w.reset()
	}
	serve()
	if n := testing.AllocsPerRun(100, serve); n != 0 {
		t.Errorf("serving %d calls allocates %v times", len(calls), n)
	}
}

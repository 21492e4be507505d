package envoy_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/rules"
)

// definitions are the rules of the domain edge in these tests.
func definitions() []rules.Definition {
	minute := func(count int64) []ratelimit.Limit {
		return []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: count, Window: time.Minute}}
	}
	return []rules.Definition{
		{Key: "user", Name: "per-user", Limits: minute(3), Metadata: map[string]any{"team": "edge"}},
		{Key: "address", Limits: []ratelimit.Limit{{Algorithm: ratelimit.TokenBucket, Count: 60, Burst: 2, Window: time.Minute}}},
		{Key: "slow", Limits: []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: 1, Window: 90 * time.Second}}},
		{Key: "many", Limits: minute(1 << 30)},
		{Key: "free", RateLimit: &rules.RateLimit{Unlimited: true}},
		{Key: "foe", Action: ratelimit.ActionDeny},
		{Key: `odd"name\`, Limits: minute(1)},
	}
}

// midnight is when the clock of these tests stands still: whole windows are left.
var midnight = time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)

func limiter(t testing.TB, store engine.Store) *engine.Limiter {
	t.Helper()
	table, err := rules.Compile(rules.Options{}, &rules.Source{Name: "test", Domains: []rules.Domain{{Name: "edge", Descriptors: definitions()}}})
	if err != nil {
		t.Fatal(err)
	}
	if store == nil {
		memory := memstore.New(memstore.Options{Now: func() time.Time { return midnight }})
		t.Cleanup(memory.Close)
		store = memory
	}
	l := engine.New(store, engine.Options{})
	l.SetTable(table)
	return l
}

func service(t testing.TB, options envoy.Options) *envoy.Service {
	t.Helper()
	options.Now = func() time.Time { return midnight }
	return envoy.New(limiter(t, nil), options)
}

func descriptor(pairs ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func request(descriptors ...*commonv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors}
}

func bytesOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(t testing.TB, reply []byte) *rlsv3.RateLimitResponse {
	t.Helper()
	var m rlsv3.RateLimitResponse
	if err := proto.Unmarshal(reply, &m); err != nil {
		t.Fatalf("the reply %x cannot be read: %v", reply, err)
	}
	return &m
}

// serve answers one request that is expected to be answered.
func serve(t testing.TB, s *envoy.Service, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	calls := []envoy.Call{{Request: bytesOf(t, r)}}
	s.Serve(t.Context(), calls)
	if calls[0].Code != codes.OK {
		t.Fatalf("%v: %s", calls[0].Code, calls[0].Message)
	}
	return read(t, calls[0].Reply)
}

// brief shows a reply as its overall code and, for each status, code, limit, remaining and reset.
func brief(m *rlsv3.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(m.GetOverallCode().String())
	for _, s := range m.GetStatuses() {
		fmt.Fprintf(&b, " %s", s.GetCode())
		if l := s.GetCurrentLimit(); l != nil {
			unit := l.GetUnit().String()
			if n := l.GetUnitMultiplier(); n != nil {
				unit = fmt.Sprint(n.GetValue(), unit)
			}
			fmt.Fprintf(&b, "(%d/%s %q left %d for %ds)", l.GetRequestsPerUnit(), unit, l.GetName(), s.GetLimitRemaining(), s.GetDurationUntilReset().GetSeconds())
		}
	}
	return b.String()
}

func TestServe(t *testing.T) {
	s := service(t, envoy.Options{})
	withLimit := func(d *commonv3.RateLimitDescriptor, count uint32, unit typev3.RateLimitUnit) *commonv3.RateLimitDescriptor {
		d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: count, Unit: unit}
		return d
	}
	costing := func(d *commonv3.RateLimitDescriptor, cost uint64, negative bool) *commonv3.RateLimitDescriptor {
		d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(cost), negative
		return d
	}
	for _, c := range []struct {
		what    string
		request *rlsv3.RateLimitRequest
		want    string
	}{
		{"first", request(descriptor("user", "a")), `OK OK(3/MINUTE "per-user" left 2 for 60s)`},
		{"a look", request(costing(descriptor("user", "a"), 0, false)), `OK OK(3/MINUTE "per-user" left 2 for 60s)`},
		{"cost 2", request(costing(descriptor("user", "a"), 2, false)), `OK OK(3/MINUTE "per-user" left 0 for 60s)`},
		{"over", request(descriptor("user", "a")), `OVER_LIMIT OVER_LIMIT(3/MINUTE "per-user" left 0 for 60s)`},
		{"given back", request(costing(descriptor("user", "a"), 1, true)), `OK OK(3/MINUTE "per-user" left 1 for 60s)`},
		{"more than there is", request(costing(descriptor("user", "a"), math.MaxUint64, false)), `OVER_LIMIT OVER_LIMIT(3/MINUTE "per-user" left 0 for 60s)`},
		{"no more than there was", request(costing(descriptor("user", "a"), math.MaxUint64, true)), `OK OK(3/MINUTE "per-user" left 3 for 60s)`},
		{"the request's cost", &rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: []*commonv3.RateLimitDescriptor{descriptor("user", "b")}}, `OK OK(3/MINUTE "per-user" left 0 for 60s)`},
		{"the request's cost, given back", &rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 2, Descriptors: []*commonv3.RateLimitDescriptor{{Entries: descriptor("user", "b").Entries, IsNegativeHits: true}}}, `OK OK(3/MINUTE "per-user" left 2 for 60s)`},
		{"one status for each", request(descriptor("x", "y"), descriptor("free", "z"), descriptor("user", "c"), descriptor()), `OK OK OK OK(3/MINUTE "per-user" left 2 for 60s) OK`},
		{"an action", request(descriptor("foe", "x"), descriptor("user", "c")), `OVER_LIMIT OVER_LIMIT OK(3/MINUTE "per-user" left 1 for 60s)`},
		{"a bucket", request(costing(descriptor("address", "a"), 2, false)), `OK OK(60/MINUTE "address" left 0 for 2s)`},
		{"an empty bucket tells when to retry", request(descriptor("address", "a")), `OVER_LIMIT OVER_LIMIT(60/MINUTE "address" left 0 for 1s)`},
		{"90 seconds", request(descriptor("slow", "a")), `OK OK(1/90SECOND "slow" left 0 for 90s)`},
		{"an override", request(withLimit(descriptor("user", "d"), 5, typev3.RateLimitUnit_HOUR)), `OK OK(5/HOUR "per-user" left 4 for 3600s)`},
		{"an override that denies all", request(withLimit(descriptor("user", "d"), 0, typev3.RateLimitUnit_HOUR)), `OVER_LIMIT OVER_LIMIT(0/HOUR "per-user" left 0 for 3600s)`},
		{"an override without a unit is none", request(withLimit(descriptor("user", "d"), 5, typev3.RateLimitUnit_UNKNOWN)), `OK OK(3/MINUTE "per-user" left 2 for 60s)`},
		{"an override where no rule is", request(withLimit(descriptor("x", "y"), 5, typev3.RateLimitUnit_SECOND)), `OK OK(5/SECOND "" left 4 for 1s)`},
		{"an unknown domain", &rlsv3.RateLimitRequest{Domain: "other", Descriptors: []*commonv3.RateLimitDescriptor{withLimit(descriptor("x", "y"), 0, typev3.RateLimitUnit_DAY)}}, `OK OK`},
		{"a name is escaped", request(descriptor(`odd"name\`, "x")), `OK OK(1/MINUTE "odd%22name%5C" left 0 for 60s)`},
	} {
		if got := brief(serve(t, s, c.request)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestServeAnswersEachCallOfABatch(t *testing.T) {
	s := service(t, envoy.Options{})
	good := bytesOf(t, request(descriptor("user", "a"), descriptor("address", "a")))
	calls := []envoy.Call{
		{Request: good, Reply: []byte("kept")},
		{Request: []byte{0xff}, Reply: []byte("kept")},
		{Request: bytesOf(t, &rlsv3.RateLimitRequest{Descriptors: request(descriptor("user", "a")).GetDescriptors()})},
		{Request: nil},
		{Request: good},
		{Request: bytesOf(t, &rlsv3.RateLimitRequest{Domain: "edge"}), Code: codes.OK, Message: "old"},
		{Request: good},
	}
	s.Serve(t.Context(), calls)
	for i, want := range map[int]string{
		0: `OK OK(3/MINUTE "per-user" left 2 for 60s) OK(60/MINUTE "address" left 1 for 1s)`,
		4: `OK OK(3/MINUTE "per-user" left 1 for 60s) OK(60/MINUTE "address" left 0 for 2s)`,
		6: `OVER_LIMIT OK(3/MINUTE "per-user" left 0 for 60s) OVER_LIMIT(60/MINUTE "address" left 0 for 1s)`,
	} {
		if got := brief(read(t, bytes.TrimPrefix(calls[i].Reply, []byte("kept")))); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	for i, want := range map[int]string{1: "cannot be read", 2: "domain is empty", 3: "domain is empty", 5: "descriptors is empty"} {
		if c := &calls[i]; c.Code != codes.InvalidArgument || !strings.Contains(c.Message, want) {
			t.Errorf("call %d: %v %q, reply %q", i, c.Code, c.Message, c.Reply)
		}
	}
	if !bytes.HasPrefix(calls[0].Reply, []byte("kept")) || string(calls[1].Reply) != "kept" {
		t.Errorf("replies are appended to what is there: %q, %q", calls[0].Reply, calls[1].Reply)
	}
	s.Serve(t.Context(), nil)
}

// Bytes that are not text are counted like any others.
func TestServeCountsInvalidUTF8(t *testing.T) {
	s := service(t, envoy.Options{})
	raw := []byte("\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff")
	if err := proto.Unmarshal(raw, &rlsv3.RateLimitRequest{}); err == nil {
		t.Fatal("the generated type reads this: the test shows nothing")
	}
	want := []string{"OK", "OK", "OK", "OVER_LIMIT"}
	for i := range want {
		calls := []envoy.Call{{Request: raw}}
		s.Serve(t.Context(), calls)
		if got := read(t, calls[0].Reply).GetOverallCode().String(); got != want[i] {
			t.Errorf("request %d: %s, want %s", i, got, want[i])
		}
	}
}

func TestServeHeadersAndBody(t *testing.T) {
	headers, err := respond.New(respond.Options{Styles: respond.XRateLimit})
	if err != nil {
		t.Fatal(err)
	}
	s := service(t, envoy.Options{Headers: headers, Problem: true, Metadata: true})
	shown := func(m *rlsv3.RateLimitResponse) string {
		var b strings.Builder
		for _, h := range m.GetResponseHeadersToAdd() {
			fmt.Fprintf(&b, "%s: %s\n", h.GetKey(), h.GetValue())
		}
		return b.String()
	}
	reset := fmt.Sprint(midnight.Add(time.Minute).Unix())
	allowed := serve(t, s, request(descriptor("user", "a")))
	if got, want := shown(allowed), "x-ratelimit-limit: 3\nx-ratelimit-remaining: 2\nx-ratelimit-reset: "+reset+"\n"; got != want {
		t.Errorf("allowed: headers\n%swant\n%s", got, want)
	}
	if allowed.GetRawBody() != nil {
		t.Errorf("allowed, with the body %s", allowed.GetRawBody())
	}
	serve(t, s, request(descriptor("user", "a")))
	serve(t, s, request(descriptor("user", "a")))
	denied := serve(t, s, request(descriptor("user", "a"), descriptor("address", "a")))
	if got, want := shown(denied), "x-ratelimit-limit: 3\nx-ratelimit-remaining: 0\nx-ratelimit-reset: "+reset+"\nretry-after: 60\ncontent-type: application/problem+json\n"; got != want {
		t.Errorf("denied: headers\n%swant\n%s", got, want)
	}
	if body := string(denied.GetRawBody()); !strings.Contains(body, `"status":429`) || !strings.Contains(body, "per-user") {
		t.Errorf("denied: body %s", body)
	}
	if got := fmt.Sprint(denied.GetDynamicMetadata().AsMap()); got != "map[degraded:false metadata:map[team:edge] outcome:denied remaining:0 rule:per-user]" {
		t.Errorf("denied: metadata %s", got)
	}
	refused := serve(t, s, request(descriptor("foe", "x")))
	if body := string(refused.GetRawBody()); !strings.Contains(body, "abnormal-usage-detected") || strings.Contains(shown(refused), "retry-after") {
		t.Errorf("refused: headers %s body %s", shown(refused), body)
	}
	if got := shown(serve(t, s, request(descriptor("x", "y")))); got != "" {
		t.Errorf("unmatched: headers %s", got)
	}
}

// faulty is a Store that panics for a user called "panic" and fails for one called "fail".
type faulty struct {
	engine.Store
	mode ratelimit.FailureMode
}

func (f faulty) Take(ctx context.Context, charges []ratelimit.Charge) {
	f.Store.Take(ctx, charges)
	for i := range charges {
		switch c := &charges[i]; {
		case strings.Contains(c.Hits[0].Key, "panic"):
			panic("a fault")
		case strings.Contains(c.Hits[0].Key, "fail"):
			c.Degraded = f.mode
			c.Results[0] = ratelimit.Result{Allowed: f.mode == ratelimit.FailOpen, RetryAfter: time.Second}
		}
	}
}

func TestAPanicFailsOneCall(t *testing.T) {
	memory := memstore.New(memstore.Options{})
	t.Cleanup(memory.Close)
	var panics atomic.Int64
	s := envoy.New(limiter(t, faulty{Store: memory}), envoy.Options{Panicked: func(value any, stack []byte) {
		if value != "a fault" || !bytes.Contains(stack, []byte("Take")) {
			t.Errorf("told of %v at %s", value, stack)
		}
		panics.Add(1)
	}})
	var calls []envoy.Call
	for _, user := range []string{"a", "panic", "b"} {
		calls = append(calls, envoy.Call{Request: bytesOf(t, request(descriptor("user", user)))})
	}
	s.Serve(t.Context(), calls)
	for i, want := range []codes.Code{codes.OK, codes.Internal, codes.OK} {
		if calls[i].Code != want || (want == codes.OK) == (len(calls[i].Reply) == 0) {
			t.Errorf("call %d: %v %q, reply %x", i, calls[i].Code, calls[i].Message, calls[i].Reply)
		}
	}
	if panics.Load() != 2 { // once together, once alone
		t.Errorf("told of %d panics", panics.Load())
	}
	if got := brief(serve(t, s, request(descriptor("user", "c")))); !strings.HasPrefix(got, "OK") {
		t.Errorf("afterwards: %s", got)
	}
}

func TestFailureModes(t *testing.T) {
	headers, err := respond.New(respond.Options{Styles: respond.XRateLimit})
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[ratelimit.FailureMode]string{
		ratelimit.FailOpen:   `OK OK OK(60/MINUTE "address" left 1 for 1s)`,
		ratelimit.FailClosed: `OVER_LIMIT OVER_LIMIT(3/MINUTE "per-user" left 0 for 1s) OK(60/MINUTE "address" left 1 for 1s)`,
		ratelimit.FailLocal:  `OVER_LIMIT OVER_LIMIT(3/MINUTE "per-user" left 0 for 1s) OK(60/MINUTE "address" left 1 for 1s)`,
	} {
		memory := memstore.New(memstore.Options{Now: func() time.Time { return midnight }})
		t.Cleanup(memory.Close)
		s := envoy.New(limiter(t, faulty{memory, mode}), envoy.Options{Headers: headers, Problem: true, Metadata: true})
		m := serve(t, s, request(descriptor("user", "fail"), descriptor("address", "a")))
		if got := brief(m); got != want {
			t.Errorf("%v: %s, want %s", mode, got, want)
		}
		if !m.GetDynamicMetadata().AsMap()["degraded"].(bool) {
			t.Errorf("%v: metadata %v", mode, m.GetDynamicMetadata())
		}
		if reduced := strings.Contains(string(m.GetRawBody()), "temporary-reduced-capacity"); reduced != (mode == ratelimit.FailClosed) {
			t.Errorf("%v: body %s", mode, m.GetRawBody())
		}
	}
}

func TestServeConcurrently(t *testing.T) {
	s := service(t, envoy.Options{})
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			own := fmt.Sprint("own-", g)
			huge := strings.Repeat("x", 40_000)
			for i := range 50 {
				calls := []envoy.Call{
					{Request: bytesOf(t, request(descriptor("user", "shared")))},
					{Request: bytesOf(t, request(descriptor("user", own), descriptor("many", huge)))},
				}
				s.Serve(t.Context(), calls)
				if read(t, calls[0].Reply).GetOverallCode() == rlsv3.RateLimitResponse_OK {
					allowed.Add(1)
				}
				m := read(t, calls[1].Reply)
				if over := m.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; over != (i >= 3) {
					t.Errorf("%s, call %d: %s", own, i, brief(m))
				}
			}
		})
	}
	wg.Wait()
	if allowed.Load() != 3 {
		t.Errorf("%d allowed at a limit of 3", allowed.Load())
	}
}

func FuzzServe(f *testing.F) {
	f.Add(bytesOf(f, request(descriptor("user", "a"), descriptor("foe", "b"))))
	f.Add([]byte("\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff"))
	f.Add([]byte{})
	headers, err := respond.New(respond.Options{Styles: respond.Envoy | respond.IETF})
	if err != nil {
		f.Fatal(err)
	}
	s := service(f, envoy.Options{
		Headers: headers, Problem: true, Metadata: true,
		Panicked: func(value any, stack []byte) { panic(fmt.Sprintf("%v\n%s", value, stack)) },
	})
	f.Fuzz(func(t *testing.T, message []byte) {
		calls := []envoy.Call{{Request: message}, {Request: message}}
		s.Serve(t.Context(), calls)
		for _, c := range calls {
			switch c.Code {
			case codes.OK:
				m := read(t, c.Reply)
				if len(m.GetStatuses()) == 0 || m.GetOverallCode() == rlsv3.RateLimitResponse_UNKNOWN {
					t.Errorf("reply %v", m)
				}
			case codes.InvalidArgument:
				if c.Message == "" || c.Reply != nil {
					t.Errorf("refused with %q and the reply %x", c.Message, c.Reply)
				}
			default:
				t.Errorf("%v: %s", c.Code, c.Message)
			}
		}
	})
}

func BenchmarkServe(b *testing.B) {
	const keys = 100_000
	s := service(b, envoy.Options{})
	for _, c := range []struct {
		name  string
		batch int
		make  func(i int) []byte
	}{
		{"uniform", 1, func(i int) []byte { return bytesOf(b, request(descriptor("many", fmt.Sprint("user-", i)))) }},
		{"uniform in bursts of 16", 16, func(i int) []byte { return bytesOf(b, request(descriptor("many", fmt.Sprint("user-", i)))) }},
		{"three descriptors", 1, func(i int) []byte {
			return bytesOf(b, request(descriptor("many", "hot"), descriptor("many", fmt.Sprint("user-", i)), descriptor("address", fmt.Sprint(i*7%keys))))
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			messages := make([][]byte, keys)
			calls := make([]envoy.Call, c.batch)
			for i := range messages {
				messages[i] = c.make(i)
				calls[0] = envoy.Call{Request: messages[i], Reply: calls[0].Reply[:0]}
				s.Serve(b.Context(), calls[:1])
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				for j := range calls {
					calls[j].Request, calls[j].Reply = messages[i%keys], calls[j].Reply[:0]
					i++
				}
				s.Serve(b.Context(), calls)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.batch), "ns/call")
		})
	}
}

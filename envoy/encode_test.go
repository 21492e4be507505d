package envoy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

func unmarshal(t interface{ Fatalf(string, ...any) }, reply []byte) *rlsv3.RateLimitResponse {
	var m rlsv3.RateLimitResponse
	if err := proto.Unmarshal(reply, &m); err != nil {
		t.Fatalf("the reply %x cannot be read: %v", reply, err)
	}
	if len(m.ProtoReflect().GetUnknown()) > 0 {
		t.Fatalf("the reply %x has unknown fields", reply)
	}
	if again, _ := proto.Marshal(&m); len(again) != len(reply) {
		t.Fatalf("the reply %x is not written as short as it can be: %x", reply, again)
	}
	return &m
}

func TestUnits(t *testing.T) {
	const d = 24 * time.Hour
	for _, c := range []struct {
		limit ratelimit.Limit
		want  string
	}{
		{ratelimit.Limit{Window: time.Second}, "SECOND"},
		{ratelimit.Limit{Window: time.Minute}, "MINUTE"},
		{ratelimit.Limit{Window: time.Hour}, "HOUR"},
		{ratelimit.Limit{Window: d}, "DAY"},
		{ratelimit.Limit{Window: 7 * d}, "WEEK"},
		{ratelimit.Limit{Window: 30 * d}, "MONTH"},
		{ratelimit.Limit{Window: 365 * d}, "YEAR"},
		{ratelimit.Limit{Window: 90 * time.Second}, "90 SECOND"},
		{ratelimit.Limit{Window: 120 * time.Second}, "2 MINUTE"},
		{ratelimit.Limit{Window: 36 * time.Hour}, "36 HOUR"},
		{ratelimit.Limit{Window: 60 * d}, "2 MONTH"},
		{ratelimit.Limit{Window: 250 * time.Millisecond}, "SECOND"},
		{ratelimit.Limit{Window: 1500 * time.Millisecond}, "2 SECOND"},
		{ratelimit.Limit{Window: 30 * d, Calendar: ratelimit.CalendarMonth}, "MONTH"},
		{ratelimit.Limit{Window: 365 * d, Calendar: ratelimit.CalendarYear}, "YEAR"},
		{ratelimit.Limit{Window: ratelimit.MaxWindow}, "122 MONTH"},
	} {
		decision := engine.Decision{Statuses: []engine.Status{{Limit: &c.limit}}}
		current := unmarshal(t, appendDecision(nil, &decision)).GetStatuses()[0].GetCurrentLimit()
		got := current.GetUnit().String()
		if n := current.GetUnitMultiplier(); n != nil {
			got = fmt.Sprintf("%d %s", n.GetValue(), got)
		}
		if got != c.want {
			t.Errorf("a window of %v is shown as %s, want %s", c.limit.Window, got, c.want)
		}
		// What is told to a client reads back as a window that is not shorter.
		o := override{requestsPerUnit: 1, unit: int32(current.GetUnit()), multiplier: current.GetUnitMultiplier().GetValue()}
		if back := o.limit(); back.Window < c.limit.Window {
			t.Errorf("a window of %v reads back as %v", c.limit.Window, back.Window)
		}
	}
}

// drawStatus draws what the engine may say of one descriptor, and some things that it does not.
func drawStatus(t *rapid.T) engine.Status {
	status := engine.Status{
		Outcome:    rapid.SampledFrom(ratelimit.Outcomes()).Draw(t, "outcome"),
		Over:       rapid.Bool().Draw(t, "over"),
		Remaining:  rapid.Int64().Draw(t, "remaining"),
		RetryAfter: time.Duration(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "retry")),
		ResetAfter: time.Duration(rapid.Int64Range(0, math.MaxInt64/2).Draw(t, "reset")),
	}
	if rapid.Bool().Draw(t, "limited") {
		status.Limit = &ratelimit.Limit{
			Name:   rapid.StringOfN(rapid.Rune(), 0, 300, -1).Draw(t, "name"),
			Count:  rapid.Int64Range(0, ratelimit.MaxCount).Draw(t, "count"),
			Window: time.Duration(rapid.Int64Range(int64(ratelimit.MinWindow), int64(ratelimit.MaxWindow)).Draw(t, "window")),
		}
	}
	if rapid.Bool().Draw(t, "ruled") {
		status.Rule = &ratelimit.Rule{Name: string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "rule"))}
	}
	return status
}

func TestRepliesReadAsTheGeneratedType(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		decision := engine.Decision{
			Over:     rapid.Bool().Draw(t, "over"),
			Statuses: rapid.SliceOfN(rapid.Custom(drawStatus), 1, 20).Draw(t, "statuses"),
		}
		m := unmarshal(t, appendDecision(nil, &decision))
		if over := m.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT; over != decision.Over {
			t.Fatalf("overall code %v", m.GetOverallCode())
		}
		if len(m.GetStatuses()) != len(decision.Statuses) {
			t.Fatalf("%d statuses for %d descriptors", len(m.GetStatuses()), len(decision.Statuses))
		}
		for i, got := range m.GetStatuses() {
			want := &decision.Statuses[i]
			if over := got.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT; over != want.Over {
				t.Fatalf("status %d: code %v", i, got.GetCode())
			}
			if want.Limit == nil || want.Outcome == ratelimit.OutcomeFailedOpen {
				if got.GetCurrentLimit() != nil || got.GetDurationUntilReset() != nil || got.GetLimitRemaining() != 0 {
					t.Fatalf("status %d shows a limit: %v", i, got)
				}
				continue
			}
			wait := want.ResetAfter
			if want.Over {
				wait = want.RetryAfter
			}
			seconds := got.GetDurationUntilReset()
			if seconds.GetNanos() != 0 || seconds.GetSeconds() < 1 || seconds.GetSeconds() < int64(wait/time.Second) || seconds.GetSeconds() > int64(wait/time.Second)+1 {
				t.Fatalf("status %d: %v shown as %v", i, wait, seconds)
			}
			if got.GetLimitRemaining() != uint32(min(max(want.Remaining, 0), math.MaxUint32)) {
				t.Fatalf("status %d: remaining %d shown as %d", i, want.Remaining, got.GetLimitRemaining())
			}
			name := got.GetCurrentLimit().GetName()
			if (name == "") != (want.Limit.Name == "" && (want.Rule == nil || want.Rule.Name == "")) {
				t.Fatalf("status %d: name %q", i, name)
			}
			checkShown(t, name)
		}
	})
}

// checkShown fails for what must not be written into a header.
func checkShown(t interface{ Fatalf(string, ...any) }, s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			t.Fatalf("%q holds the byte %#x", s, c)
		}
	}
}

func TestHeadersCannotBeInjected(t *testing.T) {
	reply := appendHeader(nil, "X-RateLimit-Limit", "1\r\nset-cookie: a=b\x00\xff")
	got := unmarshal(t, reply).GetResponseHeadersToAdd()[0]
	if got.GetKey() != "x-ratelimit-limit" || got.GetValue() != "1%0D%0Aset-cookie: a=b%00%FF" {
		t.Errorf("header %q: %q", got.GetKey(), got.GetValue())
	}
}

func TestMetadata(t *testing.T) {
	limit := ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 5, Window: time.Minute}
	first := &ratelimit.Rule{Name: "first", Metadata: map[string]any{
		"team": "a", "nested": map[string]any{"x": 1, "y": []any{true, nil, 1.5, "s", int64(-3), uint64(7)}}, "when": time.Unix(0, 0).UTC(), "empty": "",
	}}
	second := &ratelimit.Rule{Name: "sec\nond", Metadata: map[string]any{"team": "b", "nested": map[string]any{"x": 2, "z": "bad\xffutf"}, "more": true}}
	decision := engine.Decision{Degraded: true, Statuses: []engine.Status{
		{Rule: first, Limit: &limit, Remaining: 4, Outcome: ratelimit.OutcomeAllowed},
		{Rule: second, Limit: &limit, Remaining: 2, Outcome: ratelimit.OutcomeAllowed},
		{Rule: first, Limit: &limit, Remaining: 9, Outcome: ratelimit.OutcomeAllowed},
	}}
	got := unmarshal(t, appendMetadata(nil, &decision)).GetDynamicMetadata().AsMap()
	want := map[string]any{
		"rule": "sec%0Aond", "remaining": 2.0, "degraded": true, "outcome": "allowed",
		"metadata": map[string]any{
			"team": "a", "more": true, "when": "1970-01-01 00:00:00 +0000 UTC", "empty": "",
			"nested": map[string]any{"x": 1.0, "y": []any{true, nil, 1.5, "s", -3.0, 7.0}, "z": "bad\uFFFDutf"},
		},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("metadata %v\nwant %v", got, want)
	}
	if nested := first.Metadata["nested"].(map[string]any); len(nested) != 2 || len(first.Metadata) != 4 {
		t.Errorf("merging changed a rule's own metadata: %v", first.Metadata)
	}
	decision.Statuses[0].Over = true
	decision.Statuses[0].Outcome = ratelimit.OutcomeDenied
	if got := unmarshal(t, appendMetadata(nil, &decision)).GetDynamicMetadata().AsMap(); got["rule"] != "first" || got["outcome"] != "denied" {
		t.Errorf("the rule that denies comes first: %v", got)
	}
	none := engine.Decision{Statuses: []engine.Status{{}}}
	if got := unmarshal(t, appendMetadata(nil, &none)).GetDynamicMetadata().AsMap(); fmt.Sprint(got) != "map[degraded:false]" {
		t.Errorf("nothing matched: %v", got)
	}
}

func TestMetadataIsBounded(t *testing.T) {
	deep := map[string]any{}
	for range 1000 {
		deep = map[string]any{"d": deep}
	}
	decision := engine.Decision{Statuses: []engine.Status{{Rule: &ratelimit.Rule{Metadata: deep}}}}
	if got := fmt.Sprint(unmarshal(t, appendMetadata(nil, &decision)).GetDynamicMetadata().AsMap()); strings.Count(got, "d:") > maxMetadataDepth+2 {
		t.Errorf("metadata of 1,000 levels is sent with %d", strings.Count(got, "d:"))
	}
}

// Unlimited says what envoyproxy/ratelimit says: no limit, and as much left as the field can hold.
func TestUnlimited(t *testing.T) {
	decision := engine.Decision{Statuses: []engine.Status{{Rule: &ratelimit.Rule{Unlimited: true}, Outcome: ratelimit.OutcomeAllowed}, {}}}
	statuses := unmarshal(t, appendDecision(nil, &decision)).GetStatuses()
	if s := statuses[0]; s.GetCode() != rlsv3.RateLimitResponse_OK || s.GetCurrentLimit() != nil || s.GetLimitRemaining() != math.MaxUint32 {
		t.Errorf("unlimited: %v", s)
	}
	if s := statuses[1]; s.GetCode() != rlsv3.RateLimitResponse_OK || s.GetCurrentLimit() != nil || s.GetLimitRemaining() != 0 {
		t.Errorf("unmatched: %v", s)
	}
}

func BenchmarkEncode(b *testing.B) {
	limit := ratelimit.Limit{Name: "per-address", Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute}
	decision := engine.Decision{Statuses: []engine.Status{{Limit: &limit, Remaining: 42, ResetAfter: 31 * time.Second}}}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendDecision(buf[:0], &decision)
	}
}

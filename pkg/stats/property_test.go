package stats_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/stats"
)

// Whatever clients send, every hit is counted under exactly one name, the names are bounded, and none of them can end a line or
// a part of one.
func TestEveryHitIsCountedOnce(t *testing.T) {
	const most = 3
	rapid.Check(t, func(r *rapid.T) {
		c := count(t, stats.Options{MaxValues: most}, `
domain: edge
descriptors:
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: shown, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: star, value: "a*", detailed_metric: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: "any*", rate_limit: {unit: day, requests_per_unit: 5}}
`)
		hits, unknown := uint64(0), uint64(0)
		for range rapid.IntRange(0, 30).Draw(r, "requests") {
			key := rapid.SampledFrom([]string{"plain", "shown", "star", "anything", "any:|\n"}).Draw(r, "key")
			value := "a" + rapid.SampledFrom([]string{"", rapid.String().Draw(r, "text"), "1.2.3.4", "\xff\x00\r\n", strings.Repeat("é", 2000)}).Draw(r, "value")
			cost := rapid.Int64Range(-2, 8).Draw(r, "cost")
			descriptor := ratelimit.Descriptor{Entries: []ratelimit.Entry{{Key: key, Value: value}}}
			if rapid.IntRange(0, 5).Draw(r, "kind") == 0 {
				c.UnknownDomain(value, 1)
				unknown++
				continue
			}
			c.decide(ratelimit.Request{Domain: "edge", Cost: cost, Descriptors: []ratelimit.Descriptor{descriptor}})
			hits += uint64(max(cost, 0))
		}
		sums := map[string]uint64{}
		names := 0
		c.Each(func(name string, value uint64) {
			if !utf8.ValidString(name) || strings.ContainsAny(name, ":|") || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
				r.Fatalf("bad name %q", name)
			}
			sums[name[strings.LastIndexByte(name, '.')+1:]] += value
			names++
		})
		if sums["total_hits"] != hits || sums["within_limit"]+sums["over_limit"] > hits || sums["near_limit"] > hits || sums["domain_not_found"] != unknown {
			r.Fatalf("%v after %d hits and %d unknown domains", sums, hits, unknown)
		}
		if bound := 6*4*(most+1) + most + 1 + 6; names > bound {
			r.Fatalf("%d names, want at most %d", names, bound)
		}
	})
}

package respond_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

// anyBytes draws strings that are hostile more often than not.
func anyBytes(size int) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{"", "api", "a", "per-user", "\r\nSet-Cookie: a=b", `";r=1`, `\`, "%", "\x00", "é", "default"}),
		rapid.Custom(func(t *rapid.T) string {
			return string(rapid.SliceOfN(rapid.Byte(), 0, size).Draw(t, "bytes"))
		}),
	)
}

func anyLimit() *rapid.Generator[respond.Limit] {
	count := rapid.OneOf(rapid.Int64Range(-1, 5), rapid.Int64())
	length := rapid.OneOf(
		rapid.SampledFrom([]time.Duration{0, 1, time.Second, time.Minute, time.Hour, math.MaxInt64, math.MinInt64}),
		rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) }),
	)
	return rapid.Custom(func(t *rapid.T) respond.Limit {
		return respond.Limit{
			Name: anyBytes(300).Draw(t, "name"), Count: count.Draw(t, "count"), Window: length.Draw(t, "window"),
			Burst: count.Draw(t, "burst"), Remaining: count.Draw(t, "remaining"),
			ResetAfter: length.Draw(t, "reset"), RetryAfter: length.Draw(t, "retry"),
			Kind: ratelimit.Kind(rapid.Uint8Range(0, 1).Draw(t, "kind")), Denied: rapid.Bool().Draw(t, "denied"),
			Unit: anyBytes(20).Draw(t, "unit"), Partition: anyBytes(80).Draw(t, "partition"),
		}
	})
}

func anyDecision() *rapid.Generator[respond.Decision] {
	return rapid.Custom(func(t *rapid.T) respond.Decision {
		return respond.Decision{
			Denied: rapid.Bool().Draw(t, "denied"),
			Cause:  respond.Cause(rapid.Uint8Range(0, 2).Draw(t, "cause")),
			Limits: rapid.SliceOfN(anyLimit(), 0, 40).Draw(t, "limits"),
		}
	})
}

const everyStyle = respond.XRateLimit | respond.Envoy | respond.Draft03 | respond.Kong | respond.IETF | respond.Custom

func checkHeaders(d *respond.Decision, styles respond.Style) error {
	options := respond.Options{Styles: styles}
	if styles&respond.Custom != 0 {
		options.Names = respond.Names{Limit: "X-A", Remaining: "X-B", Reset: "X-C"}
	}
	formatter, err := respond.New(options)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, h := range formatter.Append(nil, d, now) {
		lower := strings.ToLower(h.Name)
		if seen[lower] {
			return fmt.Errorf("%s is written twice", h.Name)
		}
		seen[lower] = true
		if h.Name == "" || strings.Trim(h.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789") != "" {
			return fmt.Errorf("bad header name %q", h.Name)
		}
		if h.Value == "" || len(h.Value) > 8192 {
			return fmt.Errorf("%s has %d bytes", h.Name, len(h.Value))
		}
		for i := range len(h.Value) {
			if c := h.Value[i]; c < ' ' || c > '~' {
				return fmt.Errorf("%s holds byte %#x: %q", h.Name, c, h.Value)
			}
		}
		if err := checkValue(h); err != nil {
			return err
		}
	}
	if seen["retry-after"] && !d.Denied {
		return fmt.Errorf("Retry-After without a denial")
	}
	return nil
}

// checkValue reads a value as a client would.
func checkValue(h respond.Header) error {
	switch h.Name {
	case "RateLimit":
		return checkList(h, "r")
	case "RateLimit-Policy":
		return checkList(h, "q")
	}
	first, policies, listed := strings.Cut(h.Value, ", ")
	n, err := strconv.ParseInt(first, 10, 64)
	if err != nil || n < 0 || n == 0 && h.Name == "Retry-After" {
		return fmt.Errorf("%s is %q, which is no count", h.Name, h.Value)
	}
	if listed {
		// The quota policies of draft-03 are a list of integers with parameters, which RFC 9651 reads too.
		if _, err := httpsfv.UnmarshalList([]string{policies}); err != nil {
			return fmt.Errorf("%s is %q: %w", h.Name, h.Value, err)
		}
	}
	return nil
}

// checkList parses a list of RFC 9651 and writes it again: the same text shows that ours is the canonical form.
func checkList(h respond.Header, required string) error {
	list, err := httpsfv.UnmarshalList([]string{h.Value})
	if err != nil {
		return fmt.Errorf("%s is %q: %w", h.Name, h.Value, err)
	}
	again, err := httpsfv.Marshal(list)
	if err != nil || again != h.Value {
		return fmt.Errorf("%s is %q, canonical is %q (%w)", h.Name, h.Value, again, err)
	}
	if len(list) == 0 || len(list) > respond.MaxPolicies {
		return fmt.Errorf("%s lists %d limits", h.Name, len(list))
	}
	var names []string
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			return fmt.Errorf("%s holds an inner list: %q", h.Name, h.Value)
		}
		name, ok := item.Value.(string)
		if !ok {
			return fmt.Errorf("%s holds a value that is no string: %q", h.Name, h.Value)
		}
		if n, ok := item.Params.Get(required); !ok || n.(int64) < 0 {
			return fmt.Errorf("%s lacks %s: %q", h.Name, required, h.Value)
		}
		if window, ok := item.Params.Get("w"); ok && window.(int64) < 1 {
			return fmt.Errorf("%s has a window of 0: %q", h.Name, h.Value)
		}
		if key, ok := item.Params.Get("pk"); ok {
			name += "\x00" + string(key.([]byte))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if unique := slices.Compact(slices.Clone(names)); len(unique) != len(names) && h.Name == "RateLimit" {
		return fmt.Errorf("%s names a policy twice: %q", h.Name, h.Value)
	}
	return nil
}

func TestHeadersAreWellFormed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDecision().Draw(t, "decision")
		styles := respond.Style(rapid.Uint8Range(0, uint8(everyStyle)).Draw(t, "styles"))
		if err := checkHeaders(&d, styles); err != nil {
			t.Fatal(err)
		}
	})
}

// TestTightestIsListed holds for any number of limits: the one that binds is never cut off.
func TestTightestIsListed(t *testing.T) {
	formatter, err := respond.New(respond.Options{Styles: respond.IETF})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 15, 16, 17, 64, 65, 200} {
		for _, tight := range []int{0, 14, 15, 16, 63, 64, 199} {
			if tight >= size {
				continue
			}
			d := respond.Decision{Denied: true}
			for i := range size {
				d.Limits = append(d.Limits, respond.Limit{Name: "limit" + strconv.Itoa(i), Count: 10, Window: time.Second, Remaining: 5})
			}
			d.Limits[tight].Denied, d.Limits[tight].Remaining = true, 0
			headers := formatter.Append(nil, &d, now)
			for _, h := range headers[:2] {
				if want := fmt.Sprintf(`"limit%d";`, tight); !strings.Contains(h.Value, want) {
					t.Errorf("%d limits: %s lacks %s: %s", size, h.Name, want, h.Value)
				}
				if got := strings.Count(h.Value, ";"+map[string]string{"RateLimit": "r", "RateLimit-Policy": "q"}[h.Name]+"="); got != min(size, respond.MaxPolicies) {
					t.Errorf("%d limits: %s lists %d", size, h.Name, got)
				}
			}
			if got, want := respond.Violated(&d), []string{"limit" + strconv.Itoa(tight)}; !slices.Equal(got, want) {
				t.Errorf("%d limits: violated %v, want %v", size, got, want)
			}
		}
	}
}

func FuzzAppend(f *testing.F) {
	f.Add("api", "requests", "user-1", int64(100), int64(time.Minute), int64(3), int64(time.Second), uint8(everyStyle))
	f.Add("a\r\nb: c", "\"", "\x00\xff", int64(-1), int64(0), int64(1)<<62, int64(-5), uint8(respond.IETF))
	f.Fuzz(func(t *testing.T, name, unit, partition string, count, window, remaining, reset int64, styles uint8) {
		l := respond.Limit{
			Name: name, Unit: unit, Partition: partition, Count: count, Window: time.Duration(window), Remaining: remaining,
			Burst: remaining, ResetAfter: time.Duration(reset), RetryAfter: time.Duration(window), Denied: count%2 == 0,
		}
		other := l
		other.Window, other.Name = time.Duration(reset), unit
		d := respond.Decision{Denied: l.Denied, Limits: []respond.Limit{l, other}}
		if err := checkHeaders(&d, respond.Style(styles)); err != nil {
			t.Error(err)
		}
	})
}

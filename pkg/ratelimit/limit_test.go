package ratelimit_test

import (
	"errors"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestLimitCheckRefuses(t *testing.T) {
	for name, limit := range map[string]ratelimit.Limit{
		"zero value":              {},
		"no algorithm":            {Count: 1, Window: time.Second},
		"unknown algorithm":       {Algorithm: 99, Count: 1, Window: time.Second},
		"no window":               {Algorithm: ratelimit.FixedWindow, Count: 1},
		"window too short":        {Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Microsecond},
		"window too long":         {Algorithm: ratelimit.FixedWindow, Count: 1, Window: 11 * 366 * 24 * time.Hour},
		"window of nanoseconds":   {Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Second + 1},
		"negative limit":          {Algorithm: ratelimit.FixedWindow, Count: -1, Window: time.Second},
		"huge limit":              {Algorithm: ratelimit.FixedWindow, Count: ratelimit.MaxCount + 1, Window: time.Second},
		"negative burst":          {Algorithm: ratelimit.TokenBucket, Count: 1, Burst: -1, Window: time.Second},
		"burst without a bucket":  {Algorithm: ratelimit.SlidingWindow, Count: 1, Burst: 2, Window: time.Second},
		"log of too many":         {Algorithm: ratelimit.SlidingLog, Count: ratelimit.MaxLogCount + 1, Window: time.Second},
		"calendar token bucket":   {Algorithm: ratelimit.TokenBucket, Count: 1, Calendar: ratelimit.CalendarMonth},
		"lease of a log":          {Algorithm: ratelimit.SlidingLog, Count: 100, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		"lease of a queue":        {Algorithm: ratelimit.LeakyBucket, Count: 100, Burst: 100, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		"lease of one":            {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Second, Lease: lease(1, 200*time.Millisecond)},
		"lease without a size":    {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Second, Lease: lease(0, 200*time.Millisecond)},
		"lease of too many":       {Algorithm: ratelimit.FixedWindow, Count: ratelimit.MaxCount, Window: time.Second, Lease: lease(ratelimit.MaxLease+1, 200*time.Millisecond)},
		"lease above the limit":   {Algorithm: ratelimit.SlidingWindow, Count: 9, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		"lease without an end":    {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Second, Lease: lease(10, 0)},
		"lease too short":         {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Second, Lease: lease(10, time.Millisecond)},
		"lease too long":          {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Minute, Lease: lease(10, 6*time.Second)},
		"lease of nanoseconds":    {Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Minute, Lease: lease(10, time.Second+1)},
		"lease beyond the window": {Algorithm: ratelimit.FixedWindow, Count: 100, Window: 100 * time.Millisecond, Lease: lease(10, 200*time.Millisecond)},
		"lease of a small burst":  {Algorithm: ratelimit.TokenBucket, Count: 100, Burst: 29, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		"lease of an empty limit": {Algorithm: ratelimit.TokenBucket, Count: 0, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		"bucket beyond exactness": {Algorithm: ratelimit.TokenBucket, Count: 1, Burst: ratelimit.MaxCount, Window: 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			if err := limit.Check(); !errors.Is(err, ratelimit.ErrLimit) {
				t.Errorf("Check() = %v, want an ErrLimit", err)
			}
		})
	}
}

func lease(most int64, ttl time.Duration) ratelimit.Lease {
	return ratelimit.Lease{Max: most, TTL: ttl}
}

// A bucket keeps back what flows in while a lease lasts, rounded up; windows keep nothing back.
func TestCapacityWithALease(t *testing.T) {
	for want, limit := range map[int64]ratelimit.Limit{
		800:  {Algorithm: ratelimit.TokenBucket, Count: 1000, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		99:   {Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute, Lease: lease(10, 200*time.Millisecond)},
		1999: {Algorithm: ratelimit.TokenBucket, Count: 10, Burst: 2000, Window: time.Second, Lease: lease(100, 10*time.Millisecond)},
		1000: {Algorithm: ratelimit.FixedWindow, Count: 1000, Window: time.Second, Lease: lease(10, 200*time.Millisecond)},
		500:  {Algorithm: ratelimit.SlidingWindow, Count: 500, Window: time.Second, Lease: lease(10, time.Second)},
	} {
		err := limit.Check()
		if err != nil || limit.Capacity() != want {
			t.Errorf("%v holds %d, want %d (%v)", &limit, limit.Capacity(), want, err)
		}
		if err := limit.Check(); err != nil || limit.Capacity() != want {
			t.Errorf("%v, checked again, holds %d, want %d (%v)", &limit, limit.Capacity(), want, err)
		}
	}
}

func TestLimitDefaults(t *testing.T) {
	bucket := ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Minute}
	leaky := ratelimit.Limit{Algorithm: ratelimit.LeakyBucket, Count: 100, Window: time.Minute}
	denied := ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 0, Burst: 5, Window: time.Minute}
	for _, limit := range []*ratelimit.Limit{&bucket, &leaky, &denied} {
		if err := limit.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if got := bucket.Capacity(); got != 100 {
		t.Errorf("a token bucket without burst holds %d, want its count, 100", got)
	}
	if got := leaky.Capacity(); got != 1 {
		t.Errorf("a leaky bucket without burst holds %d, want 1", got)
	}
	if got := denied.Capacity(); got != 0 {
		t.Errorf("a limit of 0 holds %d, want 0 whatever its burst", got)
	}
}

// A bucket's rate is exact, or below what was asked for by less than one part in a thousand, and never above.
func TestRateIsNeverAboveTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := ratelimit.Limit{
			Algorithm: ratelimit.TokenBucket,
			Count:     rapid.Int64Range(1, 1<<33).Draw(t, "count"),
			Burst:     rapid.Int64Range(0, 1<<33).Draw(t, "burst"),
			Window:    time.Duration(rapid.Int64Range(1000, 400*24*3600*1e6).Draw(t, "window")) * time.Microsecond,
		}
		if limit.Check() != nil {
			return
		}
		token, perMicro := limit.Rate()
		if token <= 0 || perMicro <= 0 || limit.Capacity() > (1<<53)/token {
			t.Fatalf("token %d, perMicro %d, capacity %d are out of range", token, perMicro, limit.Capacity())
		}
		asked := big.NewRat(limit.Count, limit.Window.Microseconds())
		got := big.NewRat(perMicro, token)
		if got.Cmp(asked) > 0 {
			t.Fatalf("rate %v is above the limit's %v", got, asked)
		}
		least := new(big.Rat).Mul(asked, big.NewRat(999, 1000))
		if got.Cmp(least) < 0 {
			t.Fatalf("rate %v is more than a thousandth below the limit's %v", got, asked)
		}
	})
}

func TestBounds(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	at := func(value string) int64 {
		parsed, err := time.Parse(time.RFC3339, value)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.UnixMicro()
	}
	for name, c := range map[string]struct {
		limit           ratelimit.Limit
		now, start, end string
	}{
		"a minute": {
			ratelimit.Limit{Window: time.Minute},
			"2026-03-04T05:06:07Z", "2026-03-04T05:06:00Z", "2026-03-04T05:07:00Z",
		},
		"before the epoch": {
			ratelimit.Limit{Window: time.Hour},
			"1969-12-31T23:30:00Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z",
		},
		"a month": {
			ratelimit.Limit{Calendar: ratelimit.CalendarMonth},
			"2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z",
		},
		"December": {
			ratelimit.Limit{Calendar: ratelimit.CalendarMonth},
			"2026-12-31T12:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z",
		},
		"a month elsewhere": {
			ratelimit.Limit{Calendar: ratelimit.CalendarMonth, Location: tokyo},
			"2026-04-30T16:00:00Z", "2026-05-01T00:00:00+09:00", "2026-06-01T00:00:00+09:00",
		},
		"a year": {
			ratelimit.Limit{Calendar: ratelimit.CalendarYear},
			"2026-07-08T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z",
		},
	} {
		t.Run(name, func(t *testing.T) {
			start, end := c.limit.Bounds(at(c.now))
			if start != at(c.start) || end != at(c.end) {
				t.Errorf("Bounds(%s) = %v to %v, want %s to %s", c.now,
					time.UnixMicro(start).UTC(), time.UnixMicro(end).UTC(), c.start, c.end)
			}
		})
	}
}

func TestWindowName(t *testing.T) {
	for want, limit := range map[string]ratelimit.Limit{
		"60":    {Window: time.Minute},
		"0.25":  {Window: 250 * time.Millisecond},
		"month": {Calendar: ratelimit.CalendarMonth},
		"year":  {Calendar: ratelimit.CalendarYear},
	} {
		if got := limit.WindowName(); got != want {
			t.Errorf("WindowName() = %q, want %q", got, want)
		}
	}
}

func TestLimitInWords(t *testing.T) {
	for want, limit := range map[string]ratelimit.Limit{
		"100 per 1m, token_bucket, burst 150": {Algorithm: ratelimit.TokenBucket, Count: 100, Burst: 150, Window: time.Minute},
		"5 per 250ms, fixed_window":           {Algorithm: ratelimit.FixedWindow, Count: 5, Window: 250 * time.Millisecond},
		"7 per 24h, sliding_log":              {Algorithm: ratelimit.SlidingLog, Count: 7, Window: 24 * time.Hour},
		"8 per 1m30s, sliding_window":         {Algorithm: ratelimit.SlidingWindow, Count: 8, Window: 90 * time.Second},
		"1000 per month, fixed_window, quota": {Algorithm: ratelimit.FixedWindow, Count: 1000, Calendar: ratelimit.CalendarMonth, Kind: ratelimit.Quota},
		"100 per 1m, fixed_window, leases of 10 for 200ms": {
			Algorithm: ratelimit.FixedWindow, Count: 100, Window: time.Minute, Lease: lease(10, 200*time.Millisecond),
		},
		"10 per 20m, leaky_bucket, burst 1":    {Algorithm: ratelimit.LeakyBucket, Count: 10, Burst: 1, Window: 20 * time.Minute},
		"10 per 10h10m, leaky_bucket, burst 1": {Algorithm: ratelimit.LeakyBucket, Count: 10, Burst: 1, Window: 610 * time.Minute},
	} {
		if got := limit.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestAlgorithmNames(t *testing.T) {
	for _, algorithm := range ratelimit.Algorithms() {
		parsed, err := ratelimit.ParseAlgorithm(algorithm.String())
		if err != nil || parsed != algorithm {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", algorithm, parsed, err)
		}
	}
	if _, err := ratelimit.ParseAlgorithm("gcra"); err == nil {
		t.Error("an unknown algorithm was read")
	}
}

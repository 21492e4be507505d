package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// hostile is what a client may put into a key, each another string.
func hostile() []string {
	return []string{
		"", " ", "  ", "\x00", "\x00\x00", "a\x00", "a\x00b", "\n", "\r\n", "a\nb", "\xff", "\xff\xfe", "\xc3\x28", "é",
		"{", "}", "{}", "{a}", "{a}b", "a{b}", "{a}{b}", "a:b", "a:", ":a", ":", "*", "?", "[a]", "a b", "$5", `"`, "'", `\`, "%00",
		"a", "A", "ä", "a\u0308", strings.Repeat("k", 1000), strings.Repeat("k", 1001), strings.Repeat("k", 100_000),
	}
}

// keys: any bytes, told apart exactly, and never kept.
func (h *Harness) keys(t *testing.T) {
	t.Run("of any bytes", func(t *testing.T) {
		clock := NewClock(start)
		store := h.New(t, clock.Now)
		l := limit(t, ratelimit.FixedWindow, 100, time.Hour)
		for i, key := range hostile() {
			if r := take(t.Context(), t, store, ratelimit.Hit{Key: key, Limit: l, Cost: int64(i + 1)}); !r.Allowed || r.Remaining != int64(99-i) {
				t.Errorf("key %.40q: %+v after %d of 100: shared with another key?", key, r, i+1)
			}
		}
		for i, key := range hostile() {
			if left := remaining(t, store, key, l); left != int64(99-i) {
				t.Errorf("key %.40q: %d left, want %d", key, left, 99-i)
			}
		}
		if err := store.Reset(t.Context(), hostile()); err != nil {
			t.Fatal(err)
		}
		for _, key := range hostile() {
			if left := remaining(t, store, key, l); left != 100 {
				t.Errorf("key %.40q: %d left after a reset", key, left)
			}
		}
	})
	t.Run("memory of the caller", func(t *testing.T) {
		clock := NewClock(start)
		store := h.New(t, clock.Now)
		l := limit(t, ratelimit.TokenBucket, 100, time.Hour)
		// One piece of memory for all keys and IDs, overwritten after each call.
		scratch := make([]byte, 64)
		write := func(format string, n int) string {
			text := fmt.Appendf(scratch[:0], format, n)
			return unsafe.String(unsafe.SliceData(text), len(text))
		}
		wipe := func() {
			for i := range scratch {
				scratch[i] = '!'
			}
		}
		const n = 500
		for round := range 3 {
			for i := range n {
				take(t.Context(), t, store, ratelimit.Hit{Key: write("scratch-%d:60", i), Limit: l, Cost: int64(1 + i%7)})
				wipe()
			}
			for i := range n {
				if left := remaining(t, store, fmt.Sprintf("scratch-%d:60", i), l); left != 100-int64(round+1)*int64(1+i%7) {
					t.Fatalf("key %d has %d left after %d rounds of %d", i, left, round+1, 1+i%7)
				}
			}
		}
		for range 2 {
			for i := range n {
				c := charge(ratelimit.Hit{Key: "scratch-ids:60", Limit: l})
				if i == n-1 {
					c.Hits[0].Cost = 1
				}
				c.ID = write("scratch-id-%d", i)
				charges := []ratelimit.Charge{c}
				store.Take(t.Context(), charges)
				if charges[0].Err != nil {
					t.Fatalf("id %d: %v", i, charges[0].Err)
				}
				wipe()
			}
		}
		if left := remaining(t, store, "scratch-ids:60", l); left != 99 {
			t.Errorf("%d left of 100 after one hit was charged once", left)
		}
	})
}

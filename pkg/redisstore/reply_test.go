package redisstore

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// FuzzDecode feeds replies that the script does not make: they must be refused as a whole or make sense.
func FuzzDecode(f *testing.F) {
	reply := func(numbers ...int64) []byte {
		var bytes []byte
		for _, n := range numbers {
			bytes = binary.LittleEndian.AppendUint64(bytes, uint64(n))
		}
		return bytes
	}
	f.Add(reply(1, 1, 9, 0, 60_000_000, 0, 0, 0, 60_000_000, 60_000_000, -1, 0, 0, 0, 0, 2, 7, 0, 60_000_000, 7_000_000))
	f.Add(reply(1, 1, 9, 0, 1<<53, 0, -5, 0, 0, 0, -1, 0, 0, 0, 0, 3, 9, 4, 0, 9_000_000))
	f.Add(reply(1, 1, -1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0))
	f.Add(reply(1, 1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, -1, 1<<53, 0, 0, 0))
	f.Add(reply(1))
	l := &ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 1, Window: time.Second, Burst: 20}
	if err := l.Check(); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var numbers []int64
		for ; len(bytes) >= 8; bytes = bytes[8:] {
			numbers = append(numbers, int64(binary.LittleEndian.Uint64(bytes)))
		}
		charges := make([]ratelimit.Charge, 5)
		for i, keys := range [][]string{{"a"}, {"b", "c"}, {"d"}, {"d"}, {"d"}} {
			for _, key := range keys {
				charges[i].Hits = append(charges[i].Hits, ratelimit.Hit{Key: key, Limit: l, Cost: 3, Partial: true})
			}
			charges[i].Results = make([]ratelimit.Result, len(keys))
		}
		r, c := requestOf(time.Time{}, false, &charges[0], &charges[1], &charges[2], &charges[3], &charges[4])
		r.finish(numbers, nil)
		c.deliver(charges)
		for i := range charges {
			if err := charges[i].Err; errors.Is(err, ErrUnavailable) {
				if !errors.Is(err, ErrReply) || charges[0].Err == nil {
					t.Fatalf("charge %d: error %v, that of the first is %v", i, err, charges[0].Err)
				}
				continue
			} else if err != nil && !errors.Is(err, ratelimit.ErrConflict) {
				t.Errorf("error %v", err)
			}
			if len(numbers) != 20 {
				t.Fatalf("%d numbers were taken for four hits", len(numbers))
			}
			for _, r := range charges[i].Results {
				if r.Remaining < 0 || r.RetryAfter < 0 || r.ResetAfter < 0 {
					t.Errorf("%+v", r)
				}
			}
		}
	})
}

package redisstore

import (
	"encoding/binary"
	"errors"
	"testing"

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
	f.Add(reply(1, 1, 9, 0, 60_000_000, 0, 0, 0, 60_000_000, 60_000_000, 2, 0, 0, 0, 0))
	f.Add(reply(1, 1, 9, 0, 1<<53, 0, -5, 0, 0, 0, 2, 0, 0, 0, 0))
	f.Add(reply(1, 1, -1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0))
	f.Add(reply(1))
	f.Fuzz(func(t *testing.T, bytes []byte) {
		var numbers []int64
		for ; len(bytes) >= 8; bytes = bytes[8:] {
			numbers = append(numbers, int64(binary.LittleEndian.Uint64(bytes)))
		}
		charges := []*ratelimit.Charge{
			{Hits: make([]ratelimit.Hit, 1), Results: make([]ratelimit.Result, 1)},
			{Hits: make([]ratelimit.Hit, 2), Results: make([]ratelimit.Result, 2)},
		}
		if err := decode(numbers, charges); err != nil {
			if !errors.Is(err, ErrUnavailable) || !errors.Is(err, ErrReply) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if len(numbers) != 15 {
			t.Fatalf("%d numbers were taken for three hits", len(numbers))
		}
		for _, c := range charges {
			for _, r := range c.Results {
				if r.Remaining < 0 || r.RetryAfter < 0 || r.ResetAfter < 0 {
					t.Errorf("%+v", r)
				}
			}
			if c.Err != nil && !errors.Is(c.Err, ratelimit.ErrConflict) {
				t.Errorf("error %v", c.Err)
			}
		}
	})
}

package bench

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []int64
		var next int64
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			for range rapid.IntRange(0, 3000).Draw(t, "pushes") {
				q.push(next)
				want = append(want, next)
				next++
			}
			for range rapid.IntRange(0, len(want)).Draw(t, "pops") {
				if got := q.pop(); got != want[0] {
					t.Fatalf("popped %d, want %d", got, want[0])
				}
				want = want[1:]
			}
			if q.len() != len(want) || !slices.Equal(q.all(), want) {
				t.Fatalf("%d are left, want %d", q.len(), len(want))
			}
			if len(q.items) > 2*len(want)+1024+3000 {
				t.Fatalf("%d items are kept for %d", len(q.items), len(want))
			}
		}
	})
}

package bench

// queue holds the instants of calls that wait, first in, first out. The zero value is empty.
type queue struct {
	items []int64
	head  int
}

func (q *queue) len() int { return len(q.items) - q.head }

func (q *queue) push(at int64) { q.items = append(q.items, at) }

func (q *queue) pop() int64 {
	at := q.items[q.head]
	q.head++
	switch {
	case q.head == len(q.items):
		q.clear()
	case q.head >= 1024 && q.head > len(q.items)/2: // seldom enough that moving the rest costs nothing
		q.items, q.head = q.items[:copy(q.items, q.items[q.head:])], 0
	}
	return at
}

// all are the instants in it, valid until the next push or pop.
func (q *queue) all() []int64 { return q.items[q.head:] }

func (q *queue) clear() { q.items, q.head = q.items[:0], 0 }

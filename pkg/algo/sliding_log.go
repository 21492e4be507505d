package algo

import (
	"sort"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Mark is one moment at which hits came. Marks of a log are in the order of their times, no two at the same time.
type Mark struct {
	At int64
	// Sum is the number of hits of this mark and all before it, counted from any start: differences matter.
	Sum int64
}

// slidingLog keeps the time of every hit of the last Window: a hit at t counts before t+Window and no longer. A is the
// number of hits that count, and B the index of the first mark that does; marks before it wait to be overwritten.
type slidingLog struct{}

func (slidingLog) advance(s *State, l *ratelimit.Limit, now int64) {
	expired := now - l.Window.Microseconds()
	alive := s.Log[s.B:]
	n := sort.Search(len(alive), func(i int) bool { return alive[i].At > expired })
	if n > 0 {
		s.A = alive[len(alive)-1].Sum - alive[n-1].Sum
		s.B += int64(n)
	}
}

func (slidingLog) available(s *State, l *ratelimit.Limit, _ int64) int64 { return l.Count - s.A }

func (slidingLog) add(s *State, _ *ratelimit.Limit, now, n int64) int64 {
	if n < 0 {
		n = min(-n, s.A)
		dropNewest(s, n)
		return -n
	}
	s.A += n
	last := len(s.Log) - 1
	if last >= int(s.B) && s.Log[last].At == now {
		s.Log[last].Sum += n
		return n
	}
	sum := n
	if last >= 0 {
		sum += s.Log[last].Sum
	}
	makeRoom(s)
	s.Log = append(s.Log, Mark{At: now, Sum: sum})
	return n
}

func (slidingLog) wait(s *State, l *ratelimit.Limit, now, cost int64) int64 {
	alive := s.Log[s.B:]
	// The hits up to and including this number, from the oldest, must expire first.
	tooMany := s.A - (l.Count - cost)
	before := alive[len(alive)-1].Sum - s.A
	i := sort.Search(len(alive), func(i int) bool { return alive[i].Sum-before >= tooMany })
	return alive[i].At + l.Window.Microseconds() - now
}

func (slidingLog) idle(s *State, l *ratelimit.Limit, now int64) int64 {
	if s.A == 0 {
		return 0
	}
	return s.Log[len(s.Log)-1].At + l.Window.Microseconds() - now
}

// dropNewest forgets n of the s.A hits, the newest first.
func dropNewest(s *State, n int64) {
	if n == 0 {
		return
	}
	oldest := s.Log[len(s.Log)-1].Sum - s.A // Sum before the first hit that counts
	s.A -= n
	sum := oldest + s.A
	first := int(s.B)
	keep := first + sort.Search(len(s.Log)-first, func(i int) bool { return s.Log[first+i].Sum >= sum })
	if s.A == 0 {
		s.Log = s.Log[:first]
		return
	}
	s.Log = s.Log[:keep+1]
	s.Log[keep].Sum = sum
}

const smallestLog = 8

// makeRoom makes sure that a mark can be appended without the log growing beyond twice the marks that count: it moves
// these to the front, into a smaller or larger array only when they fill less than an eighth or more than half of this.
func makeRoom(s *State) {
	if len(s.Log) < cap(s.Log) {
		return
	}
	alive := s.Log[s.B:]
	into := s.Log[:0]
	if len(alive) > cap(s.Log)/2 || len(alive) < cap(s.Log)/8 && cap(s.Log) > smallestLog || cap(s.Log) == 0 {
		into = make([]Mark, 0, max(smallestLog, 2*len(alive)))
	}
	s.Log, s.B = append(into, alive...), 0
}

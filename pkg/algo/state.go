package algo

import "github.com/weirhq/weir/pkg/ratelimit"

// State is what one counter remembers. The zero value is a counter never used.
//
// Its fields are exported so that stores can keep them as they like; their meaning is the algorithm's:
//
//	               A                        B                      Unit                  Log
//	fixed_window   hits in At's window      end of that window     -                     -
//	sliding_window hits in At's window      hits in the one before length of a window    -
//	sliding_log    hits not expired at At   index of the first     -                     hits by time
//	token_bucket   parts used               -                      parts of one hit      -
//	leaky_bucket   parts in the queue       -                      parts of one hit      -
type State struct {
	At   int64 // time of the last charge
	A, B int64
	Unit int64
	Log  []Mark
	// Algorithm whose state it is. A state is never used in the eyes of another algorithm.
	Algorithm ratelimit.Algorithm
}

// arithmetic is what an algorithm does with states of its own. In every method but advance the state has been advanced
// to now.
type arithmetic interface {
	// advance brings s from s.At to now, which is not earlier: it drains, rolls windows over, and leaves out what has
	// expired. It also adapts a state that was counted under another limit. It writes to *s only, never to s.Log's memory,
	// because *s is put back when nothing is charged.
	advance(s *State, l *ratelimit.Limit, now int64)
	// available is the whole hits that may come now; negative or 0 if none.
	available(s *State, l *ratelimit.Limit, now int64) int64
	// add counts n hits, of which the caller knows that they fit. A negative n gives back as much of it as is used, a part
	// of a hit counting as one. It returns what it did, with n's sign; 0 means that it touched nothing.
	add(s *State, l *ratelimit.Limit, now, n int64) int64
	// wait is how long until cost hits, more than are available and not more than the capacity, would be.
	wait(s *State, l *ratelimit.Limit, now, cost int64) int64
	// idle is how long until s equals a state never used; for a fixed window, until its end.
	idle(s *State, l *ratelimit.Limit, now int64) int64
}

var algorithms = [...]arithmetic{
	ratelimit.FixedWindow:   fixedWindow{},
	ratelimit.SlidingWindow: slidingWindow{},
	ratelimit.SlidingLog:    slidingLog{},
	ratelimit.TokenBucket:   tokenBucket{},
	ratelimit.LeakyBucket:   leakyBucket{},
}

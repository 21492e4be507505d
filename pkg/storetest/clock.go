package storetest

import (
	"sync/atomic"
	"time"
)

// Clock is a clock that stands still until it is set. Its methods are safe for concurrent use.
type Clock struct{ now atomic.Int64 } // microseconds since the Unix epoch

// NewClock returns a clock that shows now.
func NewClock(now time.Time) *Clock {
	c := new(Clock)
	c.Set(now)
	return c
}

// Now returns the clock's time, in whole microseconds.
func (c *Clock) Now() time.Time { return time.UnixMicro(c.now.Load()) }

// Set makes the clock show now, which may be earlier than before.
func (c *Clock) Set(now time.Time) { c.now.Store(now.UnixMicro()) }

// Advance moves the clock by d.
func (c *Clock) Advance(d time.Duration) { c.now.Add(d.Microseconds()) }

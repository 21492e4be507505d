package redisstore

import "time"

// lookEvery is how late it is noticed at most that a caller's context has ended before its deadline.
const lookEvery = 10 * time.Millisecond

// watch ends the waits of calls whose time is over, or whose caller's context is. It is one timer for all calls of a lane, and
// set only while some wait: a timer and a select for each would cost a call more than all that it does to get on a flight.
type watch struct {
	timer *time.Timer
	rings time.Time // zero: it is not set
}

// mind sees to it that a call that waits is looked at when its time is over, and soon enough to notice when its caller's is. mu
// is held.
func (l *lane) mind(c *call, now time.Time) {
	due := now.Add(lookEvery)
	if c.deadline.Before(due) {
		due = c.deadline
	}
	w := &l.watch
	if !w.rings.IsZero() && !due.Before(w.rings) {
		return
	}
	w.rings = due
	if w.timer == nil {
		w.timer = time.AfterFunc(due.Sub(now), l.look)
		return
	}
	w.timer.Reset(due.Sub(now))
}

// look sends away whose time is over, in the queue and in the flights that have not landed.
func (l *lane) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch.rings = time.Time{}
	now := time.Now()
	for c := l.first; c != nil; {
		next := c.next
		if !l.drop(c, now) {
			l.mind(c, now)
		}
		c = next
	}
	for _, f := range l.flying {
		for _, c := range f.calls {
			if c.state != riding {
				continue
			}
			if c.over(now) {
				c.state = leaving
				c.wake <- sentAway
			} else {
				l.mind(c, now)
			}
		}
	}
}

package redisstore

import "time"

// lookEvery is how late it is noticed at most that a caller's context has ended before its deadline.
const lookEvery = 10 * time.Millisecond

// mind sees to it that a call that waits is looked at when its time is over, and soon enough to notice when its caller's is. A
// timer and a select for each call would cost it more than all that it does to get on a flight. mu is held.
func (l *lane) mind(c *call, now time.Time) {
	due := now.Add(lookEvery)
	if c.deadline.Before(due) {
		due = c.deadline
	}
	l.alarm.By(due, l)
}

// Ring sends away whose time is over, in the queue and in the flights that have not landed.
func (l *lane) Ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm.Rang()
	now := time.Now()
	for c := l.first; c != nil; {
		next := c.next
		if !l.drop(c, now) {
			l.mind(c, now)
		}
		c = next
	}
	for _, f := range l.flights {
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

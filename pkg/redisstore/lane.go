package redisstore

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/alarm"
	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// maxBatch is how many hits of several callers fly together: about half a millisecond of Redis.
	maxBatch = 256
	// maxWaiting is how many hits wait for a flight at most: about 40 ms of Redis.
	maxWaiting = 16 << 10
	// maxFlights is how many flights are under way at most, and fewer if the pool has fewer connections.
	maxFlights = 8
	// late is the age at which a flight is not waited for any longer by those that want to send the next one.
	late = 10 * time.Millisecond
)

// lane is the way to one server: the calls that wait, and the flights (round trips) under way.
//
// No flight is held back by a timer or run by a goroutine of the lane's own. A caller that finds no flight under way sends its
// call at once. What comes while one is under way waits; when the flight lands it goes together in the next one, which one of
// these callers runs for all. A further flight starts early if there is a whole batch, or if the last one was sent long ago:
// its connection may be dead, and must not hold up calls that are not on it.
type lane struct {
	store *Store
	node  *redis.Client // of a Cluster; nil: the one server

	mu          sync.Mutex
	first, last *call // the queue
	hits        int   // in the queue
	came        uint64
	flights     []*flight   // under way
	sent        time.Time   // the latest flight
	alarm       alarm.Alarm // to look after those that wait

	shared atomic.Bool // the latest flight had several calls
}

// do decides a call by its deadline, and tells its caller's charges what came of it.
func (l *lane) do(c *call, charges []ratelimit.Charge, now time.Time) {
	if c.over(now) {
		c.refuse(c.left())
	} else if leads, err := l.enter(c, now); err != nil {
		c.refuse(err)
	} else {
		if !leads && <-c.wake == sentAway && l.leave(c, charges) {
			return
		}
		if c.flight != nil {
			l.lead(c)
		}
	}
	c.deliver(charges)
	l.store.calls.put(c)
}

// enter puts a call into the queue. It reports whether the call is to lead a flight at once.
func (l *lane) enter(c *call, now time.Time) (leads bool, err error) {
	l.mu.Lock()
	if l.hits > 0 && l.hits+len(c.hits) > maxWaiting {
		l.mu.Unlock()
		return false, errOverloaded
	}
	l.push(c)
	leader := l.appoint(now)
	if c.state == waiting {
		l.mind(c, now)
	}
	l.mu.Unlock()
	if leader != nil && leader != c {
		leader.wake <- goOn
	}
	return leader == c, nil
}

// leave fails the charges of a call that was sent away and is still in a flight, which it belongs to from then on. It returns
// false if the flight has landed meanwhile.
func (l *lane) leave(c *call, charges []ratelimit.Charge) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.state != leaving {
		return false
	}
	c.state = gone
	err := c.left()
	for i := range c.charges {
		if to := &charges[c.charges[i].at]; c.charges[i].leftOut {
			to.Err = ratelimit.ErrCancelled
		} else {
			to.Err = err
		}
	}
	return true
}

func (l *lane) push(c *call) {
	c.prev, c.next = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.next = c
	}
	l.last = c
	l.hits += len(c.hits)
	l.came++
	c.came = l.came
}

func (l *lane) remove(c *call) {
	if c.prev == nil {
		l.first = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.last = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next = nil, nil
	l.hits -= len(c.hits)
}

// appoint starts a flight, if one may start, and returns the call that is to lead it, for the caller to wake. Of the calls
// that have waited longest it is the one with the latest deadline, so that the flight may take as long as anyone on it has.
// mu is held.
func (l *lane) appoint(now time.Time) (leader *call) {
	busy := len(l.flights) > 0 && l.hits < maxBatch && now.Sub(l.sent) < late
	if busy || len(l.flights) >= l.store.flightsAtMost {
		return nil
	}
	hits := 0
	for c := l.first; c != nil && hits < maxBatch; {
		next := c.next
		if l.drop(c, now) {
			c = next
			continue
		}
		if leader == nil || c.deadline.After(leader.deadline) {
			leader = c
		}
		hits += len(c.hits)
		c = next
	}
	if leader == nil {
		return nil
	}
	l.remove(leader)
	leader.state, leader.flight = leading, l.store.flights.get()
	l.flights = append(l.flights, leader.flight)
	l.sent = now
	return leader
}

// drop takes a call out of the queue whose time is over, or whose caller's context is. It reports whether it did. mu is held.
func (l *lane) drop(c *call, now time.Time) bool {
	if !c.over(now) {
		return false
	}
	l.remove(c)
	c.refuse(c.left())
	c.state = landed
	c.wake <- goOn
	return true
}

// board takes calls into the leader's flight, in the order in which they came, up to a batch, and none that has much more
// time than the leader. Of those on board it leaves out the charges that are cancelled. mu is held.
func (l *lane) board(leader *call, now time.Time) {
	f := leader.flight
	hits, boarded := len(leader.hits), false
	for l.first != nil {
		c := l.first
		if l.drop(c, now) {
			continue
		}
		if hits+len(c.hits) > maxBatch || c.deadline.Sub(leader.deadline) > late {
			break
		}
		if !boarded && leader.came < c.came {
			f.calls = append(f.calls, leader)
			boarded = true
		}
		l.remove(c)
		c.state = riding
		f.calls = append(f.calls, c)
		hits += len(c.hits)
	}
	if !boarded {
		f.calls = append(f.calls, leader)
	}
	for _, c := range f.calls {
		c.leaveOut()
	}
	l.shared.Store(len(f.calls) > 1)
	l.sent = now
}

// lead runs the flight that a call leads, and tells its passengers.
func (l *lane) lead(leader *call) {
	if l.shared.Load() {
		// Whoever else is ready to run and about to come gets on board. Where nobody is, that would only wake a thread in vain.
		runtime.Gosched()
	}
	l.mu.Lock()
	l.board(leader, time.Now())
	l.mu.Unlock()
	f := leader.flight
	defer l.land(f, leader)
	f.run(l, leader)
}

// land ends a flight and starts the next one.
func (l *lane) land(f *flight, leader *call) {
	l.mu.Lock()
	l.flights = slices.DeleteFunc(l.flights, func(other *flight) bool { return other == f })
	for i, c := range f.calls {
		switch {
		case c == leader:
			f.calls[i] = nil
		case c.state == gone:
			l.store.calls.put(c)
			f.calls[i] = nil
		case c.state == leaving: // and awake
			c.state = landed
			f.calls[i] = nil
		default:
			c.state = landed
		}
	}
	next := l.appoint(time.Now())
	l.mu.Unlock()
	for _, c := range f.calls {
		if c != nil {
			c.wake <- goOn
		}
	}
	if next != nil {
		next.wake <- goOn
	}
	l.store.flights.put(f, &l.store.requests)
}

// idle reports whether the lane is not used.
func (l *lane) idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.flights) == 0 && l.first == nil
}

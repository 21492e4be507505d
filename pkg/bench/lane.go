package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	keepBody = 64 << 10 // bytes of a stream's buffer that are kept for the next one

	// A connection that ends is made anew; one that ends before any reply, so often in a row, means that the server is away.
	maxBarren   = 6
	redialPause = 10 * time.Millisecond // before the second attempt, then doubled
	dialTimeout = 5 * time.Second
)

// lane is one of a load's connections, over all the connections that stand in for it when the server closes one.
type lane struct {
	load *load

	mu      sync.Mutex
	conn    *conn              // where new calls go; nil while there is none
	conns   map[*conn]struct{} // that one, and those that drain
	barren  int                // connections in a row that ended before any reply
	random  *rand.Rand
	waiting queue // calls that found no room, by when they should have been sent
	spare   []*stream
	tally   *tally

	// What is asked and expected now.
	expect expectation
	repeat bool // a call that has ended is followed by the next one: a closed loop that runs
	walk   walk
}

func newLane(l *load, index int) *lane {
	return &lane{
		load: l, conns: map[*conn]struct{}{}, tally: new(tally),
		random: rand.New(rand.NewPCG(l.options.Seed, uint64(index))), //nolint:gosec // loads are to be repeatable
	}
}

// connect makes the lane's first connection.
func (l *lane) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := dial(ctx, l)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.adopt(c)
	return nil
}

// adopt makes c the lane's connection.
func (l *lane) adopt(c *conn) {
	l.conn = c
	l.conns[c] = struct{}{}
	l.load.readers.Go(c.read)
	l.fill()
	l.flush()
}

// redial makes a new connection in the background. It is called with mu held, whenever conn has become nil.
func (l *lane) redial() {
	if l.load.closing.Err() != nil {
		return
	}
	if l.barren++; l.barren >= maxBarren {
		l.load.fail(fmt.Errorf("%s closed %d connections in a row without an answer", l.load.target.Address, l.barren))
		return
	}
	var pause time.Duration
	if l.barren > 1 {
		pause = redialPause << (l.barren - 1)
	}
	l.load.readers.Go(func() {
		select {
		case <-time.After(pause):
		case <-l.load.closing.Done():
			return
		}
		ctx, cancel := context.WithTimeout(l.load.closing, dialTimeout)
		defer cancel()
		c, err := dial(ctx, l)
		if err != nil {
			l.load.fail(err)
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.load.closing.Err() != nil {
			_ = c.net.Close()
			return
		}
		l.adopt(c)
	})
}

// walk goes over all keys once, the lanes taking turns. The zero value is none: keys are drawn at random.
type walk struct {
	at, step int
	left     int // calls to make
}

// newWalk is what one of several lanes walks over.
func newWalk(lane, lanes, keys int) walk {
	return walk{at: lane, step: lanes, left: (keys - lane + lanes - 1) / lanes}
}

// take takes one of the calls that are left.
func (w *walk) take() bool {
	if w.left == 0 {
		return false
	}
	w.left--
	return true
}

func (w *walk) next(keys int) int {
	key := w.at % keys // a call that a server gave back is made with another key
	w.at += w.step
	return key
}

// The methods below are called with mu held.

// issue makes a call that should be sent at start, now or as soon as there is room.
func (l *lane) issue(start int64) {
	if l.waiting.len() == 0 && l.room() {
		l.conn.send(start)
		return
	}
	l.waiting.push(start)
}

func (l *lane) room() bool {
	return l.conn != nil && l.conn.room() && len(l.conn.streams) < l.load.laneCalls
}

// fill sends what waits, as far as there is room.
func (l *lane) fill() {
	for l.waiting.len() > 0 && l.room() {
		l.conn.send(l.waiting.pop())
	}
}

func (l *lane) flush() {
	if l.conn != nil {
		l.conn.flush()
	}
}

// next is called when a call has ended.
func (l *lane) next() {
	if l.repeat && (l.walk.step == 0 || l.walk.take()) {
		l.issue(now())
	}
}

// underWay is the number of calls sent and not ended.
func (l *lane) underWay() int {
	n := 0
	for c := range l.conns {
		n += len(c.streams)
	}
	return n
}

// draw appends the next request.
func (l *lane) draw(dst []byte) []byte {
	if l.walk.step > 0 {
		return l.load.requests.nth(dst, l.walk.next(l.load.requests.keys))
	}
	return l.load.requests.draw(dst, l.random)
}

func (l *lane) newStream() *stream {
	if n := len(l.spare); n > 0 {
		call := l.spare[n-1]
		l.spare = l.spare[:n-1]
		return call
	}
	return new(stream)
}

func (l *lane) free(call *stream) {
	body := call.body[:0]
	if cap(body) > keepBody {
		body = nil
	}
	*call = stream{body: body}
	l.spare = append(l.spare, call)
}

// judge checks a reply that is complete.
func (l *lane) judge(call *stream, trailer replyHeader) {
	l.barren = 0
	tally := l.tally
	switch {
	case call.status != "200":
		tally.faults.add(FaultStatus, "HTTP status %q", call.status)
		return
	case trailer.grpcStatus != "0":
		tally.faults.add(FaultStatus, "gRPC status %q: %s", trailer.grpcStatus, trailer.message)
		return
	}
	found, err := parseReply(call.body)
	switch expect := l.expect; {
	case err != nil:
		tally.faults.add(FaultReply, "%v", err)
	case found.code != codeOK && found.code != codeOverLimit, expect.code != 0 && found.code != expect.code:
		tally.faults.add(FaultCode, "overall code %s instead of %s", codeName(found.code), expect)
	case found.statuses != expect.statuses:
		tally.faults.add(FaultStatuses, "%d statuses instead of %d", found.statuses, expect.statuses)
	case int64(found.limits) < l.load.limits.Load():
		tally.faults.add(FaultLimit, "%d of %d statuses tell their limit, %d did before: the server does not count, as while its store is away",
			found.limits, found.statuses, l.load.limits.Load())
	default:
		l.load.told(int64(found.limits))
		if found.code == codeOK {
			tally.allowed++
		} else {
			tally.denied++
		}
		tally.latency.Record(time.Duration(now() - call.start))
		if l.load.open() {
			tally.lag.Record(time.Duration(call.sent - call.start))
		}
	}
}

// expire gives up calls that were sent before an instant.
func (l *lane) expire(before int64) {
	for c := range l.conns {
		for id, call := range c.streams {
			if call.sent >= before {
				continue
			}
			if err := c.framer.WriteRSTStream(id, 8); err != nil { // CANCEL
				c.fail(err)
			}
			l.tally.faults.add(FaultTimeout, "no reply in %v", l.load.options.Timeout)
			c.done(id, call)
		}
		c.flush()
	}
	l.flush()
}

package fastgrpc

import (
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

const (
	maxFlights  = 4        // batches of a connection under way at once
	keptCalls   = 2 << 10  // in a batch, between its uses
	keptReplies = 64 << 10 // bytes of one
)

// batch is calls that are handled together, and the memory for it.
type batch struct {
	conn    *conn
	streams []*stream
	calls   []Call
	arrived time.Time
	context *deadline

	first, end int // of the calls that a handler has now
	method     *Method
	waits      bool      // it takes one of the connection's flights
	postponed  bool      // there was none
	running    *deadline // of the handler that waits; under conn.mu
	live       int       // calls that it waits for and that are not cancelled; under conn.mu

	reading bool   // it is handled by the goroutine that reads; under conn.mu
	buf     []byte // the read buffer that its requests are in, once another goroutine reads; under conn.mu

	// Of the watch, under its mu.
	watched  bool
	began    time.Time
	previous *batch
	next     *batch
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// add adds a call. The batch must not outlive request.
func (b *batch) add(s *stream, request []byte) {
	b.streams = append(b.streams, s)
	s.batch = b
	if n := len(b.calls); n < cap(b.calls) {
		b.calls = b.calls[:n+1]
	} else {
		b.calls = append(b.calls, Call{})
	}
	call := &b.calls[len(b.calls)-1]
	*call = Call{Request: request, Header: s.kept, Cancelled: lowered(call.Cancelled), Reply: call.Reply[:0]}
	s.flag = call.Cancelled
}

// lowered returns a flag that is false, of the memory of one that nobody looks at any more, if there is one.
func lowered(flag *atomic.Bool) *atomic.Bool {
	switch {
	case flag == nil:
		return new(atomic.Bool)
	case flag.Load(): // storing costs more than looking
		flag.Store(false)
	}
	return flag
}

// release gives the memory back.
func (b *batch) release() {
	if b.buf != nil {
		putBuffer(b.buf)
	}
	for i := range b.calls {
		b.calls[i].Request, b.calls[i].Header, b.calls[i].Message = nil, "", ""
		if cap(b.calls[i].Reply) > keptReplies {
			b.calls[i].Reply = nil
		}
	}
	clear(b.streams)
	if cap(b.calls) > keptCalls {
		return
	}
	b.conn, b.buf, b.method, b.reading, b.waits = nil, nil, nil, false, false
	b.streams, b.calls = b.streams[:0], b.calls[:0]
	batches.Put(b)
}

// forgetCancelled takes calls from first on that nobody waits for out of the batch. The caller holds conn.mu.
func (b *batch) forgetCancelled(first int) {
	n := first
	for i := first; i < len(b.streams); i++ {
		if b.streams[i].cancelled || b.conn.closing {
			b.conn.drop(b.streams[i])
			continue
		}
		if n != i {
			b.streams[n] = b.streams[i]
			b.calls[n], b.calls[i] = b.calls[i], b.calls[n] // replies and flags keep their memory
		}
		n++
	}
	b.streams, b.calls = b.streams[:n], b.calls[:n]
}

func (b *batch) timeout(i int) time.Duration {
	most := b.conn.server.options.HandlerTimeout
	if t := b.streams[i].timeout; t > 0 && t < most {
		return t
	}
	return most
}

// together reports whether calls of timeout t may be handled by the deadline of those of shortest: it takes little of their
// time.
func together(shortest, t time.Duration) bool { return t-shortest <= shortest/8 }

// sort orders calls so that those that are handled together are neighbours: methods that do not wait first, then by
// deadline. Calls that have arrived in this order already, as nearly all do, are left alone.
func (b *batch) sort() {
	for i := 1; i < len(b.streams); i++ {
		if b.streams[i].method != b.streams[0].method || b.timeout(i) < b.timeout(0) || !together(b.timeout(0), b.timeout(i)) {
			sort.Stable(b)
			return
		}
	}
}

func (b *batch) Len() int { return len(b.streams) }

func (b *batch) Swap(i, j int) {
	b.streams[i], b.streams[j] = b.streams[j], b.streams[i]
	b.calls[i], b.calls[j] = b.calls[j], b.calls[i]
}

func (b *batch) Less(i, j int) bool {
	m, n := b.streams[i].method, b.streams[j].method
	switch {
	case m == n:
		return b.timeout(i) < b.timeout(j)
	case m.Waits != n.Waits:
		return n.Waits
	default:
		return m.Path < n.Path
	}
}

// group returns the end of the calls that are handled together with the first.
func (b *batch) group(first int) (end int) {
	for end = first + 1; end < len(b.streams); end++ {
		if b.streams[end].method != b.streams[first].method || !together(b.timeout(first), b.timeout(end)) {
			break
		}
	}
	return end
}

// handle has calls of one method answered by its handler.
func (b *batch) handle(first, end int) {
	method, calls := b.method, b.calls[first:end]
	at := b.arrived.Add(b.timeout(first))
	if !time.Now().Before(at) {
		for i := range calls {
			calls[i].Code, calls[i].Message = codes.DeadlineExceeded, "the deadline passed before the call could be handled"
		}
	} else {
		if b.context == nil {
			b.context = new(deadline)
		}
		b.context.batch, b.context.at = b, at
		b.call(method, calls)
		if b.waits {
			b.conn.mu.Lock()
			b.running = nil
			b.conn.mu.Unlock()
		}
		if !b.context.release() {
			b.context = nil
		}
	}
}

// told has the server's owner know about the answers to calls for which it holds, in runs.
func (b *batch) told(holds func(*Call) bool) {
	s, path, elapsed := b.conn.server, b.method.Path, time.Since(b.arrived)
	for i := b.first; i < b.end; i++ {
		first := i
		for i < b.end && holds(&b.calls[i]) {
			i++
		}
		if i > first {
			s.options.Answered(path, b.calls[first:i], elapsed)
		}
	}
}

func (b *batch) call(method *Method, calls []Call) {
	defer func() {
		if value := recover(); value != nil {
			for i := range calls {
				calls[i].Code, calls[i].Message = codes.Internal, "internal error"
			}
			b.postponed = false
			b.conn.server.options.Panicked(value, debug.Stack())
		}
	}()
	method.Handler(b.context, calls)
}

// handle has the calls of b answered, and those of batches that have waited for it. It reports whether this goroutine is
// still the one that reads.
func (c *conn) handle(b *batch) (reading bool) {
	for b != nil {
		b.sort()
		for b.first = 0; b.first < len(b.streams); b.first = b.end {
			b.end = b.group(b.first)
			b.method = b.streams[b.first].method // streams are used again once they are answered
			b.handle(b.first, b.end)
			c.handled(b)
		}
		c.mu.Lock()
		reading = b.reading
		var next *batch
		if b.waits {
			c.flights--
		}
		if c.waiting != nil && c.flights < maxFlights {
			next, c.waiting = c.waiting, nil
			next.forgetCancelled(0)
			next.reading = reading
		}
		c.endIfDrained()
		c.mu.Unlock()
		b.release()
		b = next
	}
	return reading
}

// handled sends the answers of a handler that has returned.
func (c *conn) handled(b *batch) {
	if b.waits {
		c.server.watch.remove(b)
	}
	b.told(func(call *Call) bool { return !call.sent && (call.Done || !b.postponed) })
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := b.first; i < b.end; i++ {
		switch call := &b.calls[i]; {
		case call.sent:
		case b.postponed && !call.Done:
			c.postpone(b, i)
		default:
			c.answer(b.streams[i], call)
		}
	}
	b.postponed = false
	c.recent += b.end - b.first
	b.forgetCancelled(b.end)
	c.flush()
}

// wait is Wait: it sends what is answered, and finds out whether the handler may wait.
func (b *batch) wait() bool {
	c := b.conn
	b.told(func(call *Call) bool { return call.Done && !call.sent })
	c.mu.Lock()
	for i := b.first; i < b.end; i++ {
		if call := &b.calls[i]; call.Done && !call.sent {
			call.sent = true
			c.answer(b.streams[i], call)
		}
	}
	c.flush() // what is not an answer does not wait either
	begins := false
	if !b.waits {
		if c.flights < maxFlights {
			c.flights++
			b.waits, begins = true, true
		} else {
			b.postponed = true
		}
	}
	if b.waits && b.end < len(b.streams) {
		c.split(b)
	}
	if begins {
		b.running, b.live = b.context, 0
		for i := b.first; i < b.end; i++ {
			if !b.calls[i].sent && !b.streams[i].cancelled {
				b.live++
			}
		}
	}
	c.mu.Unlock()
	if begins {
		c.server.watch.add(b)
	}
	return b.waits
}

// split lets another goroutine handle the calls of b that no handler has yet: they have other deadlines, or another method that
// waits.
func (c *conn) split(b *batch) {
	rest := batches.Get().(*batch) //nolint:forcetypeassert // the pool holds nothing else
	rest.conn, rest.arrived = c, b.arrived
	for i := b.end; i < len(b.streams); i++ {
		c.keep(b.streams[i], b.calls[i].Request, rest)
	}
	clear(b.streams[b.end:])
	b.streams, b.calls = b.streams[:b.end], b.calls[:b.end]
	c.server.tasks.Go(func() { c.handle(rest) })
}

// answer sends the answer of a call that was handled.
func (c *conn) answer(s *stream, call *Call) {
	s.queued = false
	if s.cancelled || c.closing {
		c.drop(s)
		return
	}
	c.respond(s, call.Code, call.Message, call.Reply)
	if len(c.out) >= maxOutput {
		c.flush()
	}
}

package fastgrpc

import (
	"runtime/debug"
	"sort"
	"sync"
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

	reading bool   // it is handled by the goroutine that reads; under conn.mu
	buf     []byte // the read buffer that its requests are in, once another goroutine reads; under conn.mu

	began    int64 // tick of the watch
	previous *batch
	next     *batch
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// add adds a call. The batch must not outlive request.
func (b *batch) add(s *stream, request []byte) {
	b.streams = append(b.streams, s)
	if n := len(b.calls); n < cap(b.calls) {
		b.calls = b.calls[:n+1]
	} else {
		b.calls = append(b.calls, Call{})
	}
	call := &b.calls[len(b.calls)-1]
	call.Request, call.Header, call.Reply, call.Code, call.Message = request, s.kept, call.Reply[:0], codes.OK, ""
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
	b.conn, b.buf, b.reading = nil, nil, false
	b.streams, b.calls = b.streams[:0], b.calls[:0]
	batches.Put(b)
}

// forgetCancelled takes calls from first on that nobody waits for out of the batch. The caller holds conn.mu.
func (b *batch) forgetCancelled(first int) {
	n := first
	for i := first; i < len(b.streams); i++ {
		if b.streams[i].cancelled {
			b.conn.drop(b.streams[i])
			continue
		}
		if n != i {
			b.streams[n] = b.streams[i]
			b.calls[n], b.calls[i] = b.calls[i], b.calls[n] // replies keep their memory
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
	s, method, calls := b.conn.server, b.streams[first].method, b.calls[first:end]
	at := b.arrived.Add(b.timeout(first))
	if !time.Now().Before(at) {
		for i := range calls {
			calls[i].Code, calls[i].Message = codes.DeadlineExceeded, "the deadline passed before the call could be handled"
		}
	} else {
		if b.context == nil {
			b.context = new(deadline)
		}
		b.context.at = at
		s.call(method, b.context, calls)
		if !b.context.release() {
			b.context = nil
		}
	}
	s.options.Answered(method.Path, calls, time.Since(b.arrived))
}

func (s *Server) call(method *Method, context *deadline, calls []Call) {
	defer func() {
		if value := recover(); value != nil {
			for i := range calls {
				calls[i].Code, calls[i].Message = codes.Internal, "internal error"
			}
			s.options.Panicked(value, debug.Stack())
		}
	}()
	method.Handler(context, calls)
}

// handle has the calls of b answered, and those of batches that have waited for it. It reports whether this goroutine is
// still the one that reads.
func (c *conn) handle(b *batch) (reading bool) {
	for b != nil {
		b.sort()
		for first := 0; first < len(b.streams); {
			end := b.group(first)
			if b.streams[first].method.Waits {
				c.server.watch.add(b)
				b.handle(first, end)
				c.server.watch.remove(b)
			} else {
				b.handle(first, end)
			}
			c.mu.Lock()
			for i := first; i < end; i++ {
				c.answer(b.streams[i], &b.calls[i])
			}
			c.recent += end - first
			b.forgetCancelled(end)
			c.flush()
			c.mu.Unlock()
			first = end
		}
		c.mu.Lock()
		reading = b.reading
		next := c.waiting
		c.waiting = nil
		if next != nil {
			next.forgetCancelled(0)
			next.reading = reading
		} else {
			c.flights--
		}
		c.endIfDrained()
		c.mu.Unlock()
		b.release()
		b = next
	}
	return reading
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

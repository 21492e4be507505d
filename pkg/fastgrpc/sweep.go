package fastgrpc

import (
	"time"

	"golang.org/x/net/http2"
)

// sweepEvery is the unit in which a connection's age, silence and patience are measured. One goroutine looks at all
// connections that often, so that none needs a timer.
const sweepEvery = time.Second

// ticks rounds d up.
func ticks(d time.Duration) int64 { return int64((d + sweepEvery - 1) / sweepEvery) }

func (s *Server) sweep() {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	var connections []*conn
	for {
		select {
		case <-s.stopped:
			return
		case <-ticker.C:
		}
		now := s.tick.Add(1)
		s.mu.Lock()
		for c := range s.conns {
			connections = append(connections, c)
		}
		s.mu.Unlock()
		for _, c := range connections {
			c.sweep(now)
		}
		clear(connections)
		connections = connections[:0]
	}
}

// sweep ends what has lasted too long.
func (c *conn) sweep(now int64) {
	o := &c.server.options
	if since := c.writing.Load(); since != 0 && now-since > ticks(o.WriteTimeout) {
		_ = closeNow(c.net) // the writer holds the lock; it and the reader find out
		return
	}
	if !c.mu.TryLock() {
		return // busy, and looked at again in a moment
	}
	defer c.mu.Unlock()
	c.controls, c.resets, c.recent = 0, 0, 0
	switch {
	case c.closing:
		if now-c.closed >= 2 {
			c.kill()
		}
		return
	case !c.settled:
		if now-c.opened > ticks(o.HandshakeTimeout) {
			c.kill()
		}
		return
	case c.partial != 0 && now-c.partial > ticks(o.RequestTimeout):
		c.abort(&connError{http2.ErrCodeEnhanceYourCalm, "a frame takes too long"})
		return
	}
	c.sweepStreams(now)
	c.sweepDrain(now)
	if !c.closing {
		c.sweepSilence(now)
	}
}

// sweepStreams ends requests that take too long to come, and answers that take too long to go.
func (c *conn) sweepStreams(now int64) {
	o := &c.server.options
	for _, s := range c.streams {
		slow := !s.ended && s.answer == nil && now-s.opened > ticks(o.RequestTimeout)
		stuck := s.answer != nil && now-s.answered > ticks(o.WriteTimeout)
		if !s.queued && (slow || stuck) {
			c.fail(s, http2.ErrCodeCancel)
		}
	}
	c.pump() // forgets those that were cancelled
}

func (c *conn) sweepDrain(now int64) {
	o := &c.server.options
	switch c.drain {
	case drainNone:
		aged := c.ages != 0 && now >= c.ages
		idle := o.MaxConnectionIdle > 0 && len(c.streams) == 0 && now-c.active > ticks(o.MaxConnectionIdle)
		if aged || idle {
			c.announce(ticks(o.MaxConnectionAgeGrace))
		}
	case drainAnnounced:
		if now-c.drained >= 5 { // no word from the peer: it will not come
			c.refuseNew()
			c.flush()
		}
	case drainRefusing: // ends with the last stream
	}
	if c.drain != drainNone && c.grace > 0 && now-c.drained > c.grace {
		c.linger()
		return
	}
	c.endIfDrained()
}

// sweepSilence asks a silent peer whether it is alive.
func (c *conn) sweepSilence(now int64) {
	o := &c.server.options
	silent := now - c.heard.Load()
	if silent < ticks(o.KeepaliveTime) {
		c.pinged = 0
		c.flush()
		return
	}
	if c.pinged == 0 {
		c.pinged = now
		c.out = append(appendFrame(c.output(), 8, http2.FramePing, 0, 0), "alive?  "...)
	} else if now-c.pinged > ticks(o.KeepaliveTimeout) {
		c.kill()
	}
	c.flush()
}

package fastgrpc

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// drainState is how far a connection is on the way to its planned end.
type drainState int

const (
	drainNone      drainState = iota
	drainAnnounced            // GOAWAY was sent; what the peer sent before it knew is taken
	drainRefusing             // the peer knows: no new streams; the end comes with the last answer
)

// drainPing is the payload of the PING whose acknowledgement says that the peer knows.
const drainPing = "goodbye."

// announce begins to drain the connection.
func (c *conn) announce(grace int64) {
	if c.drain != drainNone || c.closing {
		return
	}
	c.drained, c.grace = c.server.tick.Load(), grace
	if !c.begun {
		c.kill()
		return
	}
	c.drain = drainAnnounced
	c.appendGoAway(maxWindow, http2.ErrCodeNo, "")
	c.out = append(appendFrame(c.output(), 8, http2.FramePing, 0, 0), drainPing...)
	c.flush()
}

// refuseNew tells the peer which stream is the last.
func (c *conn) refuseNew() {
	if c.drain == drainRefusing {
		return
	}
	if c.drained == 0 {
		c.drained = c.server.tick.Load()
	}
	c.drain = drainRefusing
	c.appendGoAway(c.last, http2.ErrCodeNo, "")
}

// endIfDrained ends a connection that has nothing left to do.
func (c *conn) endIfDrained() {
	if c.drain == drainRefusing && len(c.streams) == 0 && !c.closing {
		c.linger()
	}
}

func (c *conn) appendGoAway(last uint32, code http2.ErrCode, reason string) {
	c.out = appendFrame(c.output(), 8+len(reason), http2.FrameGoAway, 0, 0)
	c.out = binary.BigEndian.AppendUint32(c.out, last)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(code))
	c.out = append(c.out, reason...)
}

package stats

import (
	"context"
	"net"
	"time"
)

const (
	dialTimeout  = time.Second
	writeTimeout = time.Second
	// redialAfter is how long a server that was away is left alone, so that what there is to write is lost without waiting.
	redialAfter = 3 * time.Second
)

// connection writes to a server that may be away or come back at any time.
type connection struct {
	network, address string
	open             net.Conn  // nil: none
	away             time.Time // until then it is not tried
}

// write reports whether the payload was written.
func (c *connection) write(payload []byte) bool {
	if c.open == nil && !c.dial() {
		return false
	}
	deadline := time.Now().Add(writeTimeout)
	if err := c.open.SetWriteDeadline(deadline); err == nil {
		if _, err := c.open.Write(payload); err == nil {
			return true
		}
	}
	_ = c.close()
	c.away = time.Now().Add(redialAfter)
	return false
}

func (c *connection) dial() bool {
	if time.Now().Before(c.away) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	open, err := new(net.Dialer).DialContext(ctx, c.network, c.address)
	if err != nil {
		c.away = time.Now().Add(redialAfter)
		return false
	}
	c.open = open
	return true
}

func (c *connection) close() error {
	if c.open == nil {
		return nil
	}
	err := c.open.Close()
	c.open = nil
	return err
}

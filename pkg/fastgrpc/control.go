package fastgrpc

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// What a connection may ask for per second beside its calls: frames that cost the peer less than the server, and calls
// cancelled before their answer. An Envoy whose calls all run into its timeout stays far below the second.
const (
	controlsPerSecond = 2000
	controlsPerCall   = 4 // an honest client's pings and window updates follow its calls
	resetsPerSecond   = 10000
	streamsPerControl = 32 // that a change of all windows may touch for the price of a frame
)

func (c *conn) spend(n int) error {
	c.controls += n
	if c.controls > controlsPerSecond+controlsPerCall*c.recent {
		return &connError{http2.ErrCodeEnhanceYourCalm, "too many frames that are not calls"}
	}
	return nil
}

func (c *conn) settingsFrame(flags http2.Flags, stream uint32, payload []byte) error {
	if stream != 0 {
		return protocolError("SETTINGS on a stream")
	}
	if flags.Has(http2.FlagSettingsAck) {
		if len(payload) != 0 {
			return sizeError("an acknowledgement of SETTINGS with a payload")
		}
		return nil
	}
	if len(payload)%6 != 0 {
		return sizeError("SETTINGS of a broken length")
	}
	c.settled = true
	before := c.peerWindow
	for ; len(payload) > 0; payload = payload[6:] {
		setting := http2.Setting{ID: http2.SettingID(binary.BigEndian.Uint16(payload)), Val: binary.BigEndian.Uint32(payload[2:])}
		if err := setting.Valid(); err != nil {
			code := http2.ErrCodeProtocol
			if setting.ID == http2.SettingInitialWindowSize {
				code = http2.ErrCodeFlowControl
			}
			return &connError{code, "a setting out of its range"}
		}
		switch setting.ID { //nolint:exhaustive // the others say nothing to a server that does not push
		case http2.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(maxTableSize)
			c.encoder.SetMaxDynamicTableSize(min(setting.Val, maxTableSize))
			c.forgetBlocks()
		case http2.SettingMaxFrameSize:
			c.peerFrame = int(setting.Val)
		case http2.SettingInitialWindowSize:
			if err := c.resizeWindows(int64(setting.Val)); err != nil {
				return err
			}
		}
	}
	c.out = appendFrame(c.output(), 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	if c.peerWindow > before {
		c.resume()
	}
	return nil
}

// resizeWindows makes size the window that streams begin with, and changes those that are open by the difference.
func (c *conn) resizeWindows(size int64) error {
	delta := size - c.peerWindow
	c.peerWindow = size
	if err := c.spend(len(c.streams) / streamsPerControl); err != nil {
		return err
	}
	for _, s := range c.streams {
		if s.window += delta; s.window > maxWindow {
			return &connError{http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE makes a window overflow"}
		}
	}
	return nil
}

// resume sends what the new size of windows allows.
func (c *conn) resume() {
	for _, s := range c.streams {
		if s.answer != nil && !s.cancelled {
			c.advance(s)
		}
	}
}

func (c *conn) pingFrame(flags http2.Flags, stream uint32, payload []byte) error {
	switch {
	case len(payload) != 8:
		return sizeError("a PING that has not 8 bytes")
	case stream != 0:
		return protocolError("a PING on a stream")
	case !flags.Has(http2.FlagPingAck):
		c.out = append(appendFrame(c.output(), 8, http2.FramePing, http2.FlagPingAck, 0), payload...)
	case c.drain == drainAnnounced && string(payload) == drainPing:
		c.refuseNew()
	}
	return nil
}

func (c *conn) windowFrame(id uint32, payload []byte) error {
	if len(payload) != 4 {
		return sizeError("a WINDOW_UPDATE that has not 4 bytes")
	}
	increment := int64(binary.BigEndian.Uint32(payload) & maxWindow)
	if id == 0 {
		if increment == 0 {
			return protocolError("a WINDOW_UPDATE by 0")
		}
		if c.window += increment; c.window > maxWindow {
			return &connError{http2.ErrCodeFlowControl, "the connection's window overflows"}
		}
		c.pump()
		return nil
	}
	s := c.streams[id]
	switch {
	case s == nil && id > c.last:
		return protocolError("a WINDOW_UPDATE on an idle stream")
	case s == nil || s.cancelled:
		return nil
	case increment == 0:
		c.fail(s, http2.ErrCodeProtocol)
		return nil
	}
	if s.window += increment; s.window > maxWindow {
		c.fail(s, http2.ErrCodeFlowControl)
		return nil
	}
	if s.answer != nil {
		c.advance(s)
	}
	return nil
}

func (c *conn) resetFrame(id uint32, payload []byte) error {
	switch {
	case len(payload) != 4:
		return sizeError("a RST_STREAM that has not 4 bytes")
	case id == 0 || id > c.last:
		return protocolError("a RST_STREAM on an idle stream")
	}
	c.controls-- // it has a budget of its own
	if c.resets++; c.resets > resetsPerSecond {
		return &connError{http2.ErrCodeEnhanceYourCalm, "too many calls are cancelled"}
	}
	if s := c.streams[id]; s != nil {
		c.cancel(s)
	}
	return nil
}

func (c *conn) priorityFrame(id uint32, payload []byte) error {
	switch {
	case id == 0:
		return protocolError("PRIORITY without a stream")
	case len(payload) != 5:
		c.resetID(id, http2.ErrCodeFrameSize)
	case binary.BigEndian.Uint32(payload)&maxWindow == id:
		c.resetID(id, http2.ErrCodeProtocol)
	}
	return nil
}

func (c *conn) goAwayFrame(stream uint32, payload []byte) error {
	switch {
	case stream != 0:
		return protocolError("a GOAWAY on a stream")
	case len(payload) < 8:
		return sizeError("a GOAWAY of less than 8 bytes")
	}
	// It asks for nothing more; what it has asked for is answered.
	c.refuseNew()
	return nil
}

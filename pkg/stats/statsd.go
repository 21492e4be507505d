package stats

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Dialect is the form of a line.
type Dialect uint8

// The dialects.
const (
	// Statsd puts tags into the name, NAME.__KEY=VALUE, as the reference does.
	Statsd Dialect = iota
	// DogStatsD has tags of its own.
	DogStatsD
)

// ClientOptions say where to send lines to, and how.
type ClientOptions struct {
	// Network and Address are as of net.Dial: udp, tcp or unixgram.
	Network, Address string
	Dialect          Dialect
	// Tags are KEY:VALUE, for all lines.
	Tags []string
	// Mogrifiers count for DogStatsD alone.
	Mogrifiers []Mogrifier
}

// Client writes lines to a statsd server. A line that cannot be written at once is lost, and counted. But for Lost it is for
// one goroutine.
//
// The lines are written here because libraries for them either know no TCP, which the reference speaks, or want to draw the
// sample of a timer themselves.
type Client struct {
	connection connection
	suffix     string // after a name: the tags, in the dialect that has none
	tags       string // after a value
	mogrifiers []Mogrifier
	names      map[string]ending // emptied when it is full
	payload    []byte
	waiting    uint64 // lines in payload
	lost       atomic.Uint64
}

// ending is what a mogrifier made of a name.
type ending struct{ name, tags string }

const (
	// maxPayload fits into an Ethernet frame.
	maxPayload    = 1432
	rememberNames = 100_000
)

// NewClient returns a client. It connects when there is something to send, and again some time after an error.
func NewClient(options ClientOptions) *Client {
	c := &Client{connection: connection{network: options.Network, address: options.Address}, names: make(map[string]ending)}
	tags := slices.Sorted(slices.Values(options.Tags))
	if options.Dialect == DogStatsD {
		c.mogrifiers, c.tags = options.Mogrifiers, tagList(tags)
		return c
	}
	for _, tag := range tags {
		key, value, _ := strings.Cut(tag, ":")
		c.suffix += ".__" + partText(key) + "=" + partText(value)
	}
	return c
}

// tagList writes tags as they stand after a value.
func tagList(tags []string) string {
	if len(tags) == 0 {
		return ""
	}
	list := make([]string, len(tags))
	for i, tag := range tags {
		list[i] = strings.Map(replacing("|,\n"), tag)
	}
	return "|#" + strings.Join(list, ",")
}

// partText makes text a part of a name.
func partText(text string) string { return strings.Map(replacing(".:|=\n"), text) }

// replacing makes what has a meaning in a line an underscore.
func replacing(special string) func(rune) rune {
	return func(r rune) rune {
		if strings.ContainsRune(special, r) {
			return '_'
		}
		return r
	}
}

// count writes what a counter grew by.
func (c *Client) count(name string, delta uint64) {
	c.line(name, func(to []byte) []byte { return append(strconv.AppendUint(to, delta, 10), "|c"...) })
}

// timing writes how long something took. It is one of a sample, which is this part of all.
func (c *Client) timing(name string, elapsed time.Duration, rate float64) {
	c.line(name, func(to []byte) []byte {
		to = strconv.AppendFloat(to, float64(elapsed.Microseconds())/1000, 'f', -1, 64)
		to = append(to, "|ms"...)
		if rate < 1 {
			to = strconv.AppendFloat(append(to, "|@"...), rate, 'g', 4, 64)
		}
		return to
	})
}

func (c *Client) line(name string, value func([]byte) []byte) {
	e := c.ending(name)
	start := len(c.payload)
	c.payload = append(append(append(c.payload, e.name...), c.suffix...), ':')
	c.payload = append(append(value(c.payload), e.tags...), '\n')
	if start > 0 && len(c.payload) > maxPayload {
		last := slices.Clone(c.payload[start:])
		c.payload = c.payload[:start]
		c.flush()
		c.payload = append(c.payload, last...)
	}
	c.waiting++
}

// ending returns the name and the tags of a line.
func (c *Client) ending(name string) ending {
	if len(c.mogrifiers) == 0 {
		return ending{name, c.tags}
	}
	if known, ok := c.names[name]; ok {
		return known
	}
	if len(c.names) >= rememberNames {
		clear(c.names)
	}
	renamed, tags := mogrify(c.mogrifiers, name)
	list := tagList(tags)
	if c.tags != "" && list != "" {
		list = c.tags + "," + strings.TrimPrefix(list, "|#")
	} else {
		list = c.tags + list
	}
	e := ending{renamed, list}
	c.names[name] = e
	return e
}

// flush writes the lines that are waiting.
func (c *Client) flush() {
	if len(c.payload) > 0 && !c.connection.write(c.payload) {
		c.lost.Add(c.waiting)
	}
	c.payload, c.waiting = c.payload[:0], 0
}

// Lost is how many lines could not be written. It is safe for concurrent use.
func (c *Client) Lost() uint64 { return c.lost.Load() }

// Close closes the connection.
func (c *Client) Close() error { return c.connection.close() }

package config

import (
	"net"
	"strings"
	"time"
)

// The values of Statsd.Dialect.
const (
	DialectStatsd    = "statsd"
	DialectDogStatsD = "dogstatsd"
)

// Statsd is where the statistics of envoyproxy/ratelimit are sent. It is on if Address is set.
type Statsd struct {
	Address       string        `yaml:"address" doc:"Where to send the statistics of envoyproxy/ratelimit: HOST:PORT or udp://HOST:PORT, tcp://HOST:PORT, unix:///PATH (datagrams); empty: nowhere"`
	Dialect       string        `yaml:"dialect" oneof:"statsd|dogstatsd" doc:"Form of a line: statsd puts tags into the name (NAME.__KEY=VALUE), dogstatsd after it"`
	Tags          []string      `yaml:"tags" doc:"KEY:VALUE of each tag that all lines have"`
	FlushInterval time.Duration `yaml:"flush_interval" min:"100ms" max:"1h" doc:"How often what the counters grew by is sent"`
	Mogrifiers    []string      `yaml:"mogrifiers" doc:"For dogstatsd, what turns parts of names into tags: PATTERN => NAME TAG:VALUE,..., where $1 is what the pattern's first group matched; the first pattern that matches counts"`
}

// Enabled reports whether statistics are sent.
func (s *Statsd) Enabled() bool { return s.Address != "" }

// Target splits the address into a network and an address in it, as of net.Dial. Both are empty if it is none.
func (s *Statsd) Target() (network, address string) {
	scheme, rest, found := strings.Cut(s.Address, "://")
	if !found {
		scheme, rest = "udp", s.Address
	}
	switch scheme {
	case "udp", "tcp":
		if host, port, err := net.SplitHostPort(rest); err == nil && host != "" && port != "" {
			return scheme, rest
		}
	case "unix":
		if strings.HasPrefix(rest, "/") {
			return "unixgram", rest
		}
	}
	return "", ""
}

func (c *Config) checkStatsd(k *checker) {
	s := &c.Statsd
	if network, _ := s.Target(); s.Enabled() && network == "" {
		k.fault("statsd.address", "%q is no address: write HOST:PORT, tcp://HOST:PORT or unix:///PATH", s.Address)
	}
	for _, tag := range s.Tags {
		if key, value, found := strings.Cut(tag, ":"); !found || key == "" || value == "" {
			k.fault("statsd.tags", "%q is no tag: write KEY:VALUE", tag)
		}
	}
	for _, mogrifier := range s.Mogrifiers {
		if pattern, rest, found := strings.Cut(mogrifier, " => "); !found || pattern == "" || strings.TrimSpace(rest) == "" {
			k.fault("statsd.mogrifiers", "%q is none: write PATTERN => NAME, or PATTERN => NAME TAG:VALUE,TAG:VALUE", mogrifier)
		}
	}
	m := &c.Metrics
	if m.Address != "" {
		if _, port, err := net.SplitHostPort(m.Address); err != nil || port == "" {
			k.fault("metrics.address", "%q is no address: write HOST:PORT, or :PORT for all of the machine's", m.Address)
		}
	}
	if !strings.HasPrefix(m.Path, "/") {
		k.fault("metrics.path", "%q is no path: write one such as /metrics", m.Path)
	}
}

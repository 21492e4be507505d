package stats_test

import (
	"bufio"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/stats"
)

const one = `
domain: edge
descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 10}}]
`

// server takes lines.
type server struct {
	address string
	mu      sync.Mutex
	got     []string
	changed chan struct{}
}

func (s *server) take(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for line := range strings.Lines(text) {
		s.got = append(s.got, strings.TrimSuffix(line, "\n"))
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// lines waits for at least n lines, and returns those that came, sorted.
func (s *server) lines(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		got := slices.Sorted(slices.Values(s.got))
		s.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-s.changed:
		case <-deadline:
			t.Fatalf("%d lines came, want %d: %q", len(got), n, got)
		}
	}
}

func listen(t *testing.T, network string) *server {
	t.Helper()
	s := &server{changed: make(chan struct{}, 1)}
	if network == "tcp" {
		listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.address = listener.Addr().String()
		s.accept(t, listener)
		return s
	}
	address := "127.0.0.1:0"
	if network == "unixgram" {
		address = filepath.Join(t.TempDir(), "statsd")
	}
	packets, err := new(net.ListenConfig).ListenPacket(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	s.address = packets.LocalAddr().String()
	var reader sync.WaitGroup
	reader.Go(func() {
		buffer := make([]byte, 64<<10)
		for {
			n, _, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			s.take(string(buffer[:n]))
		}
	})
	t.Cleanup(reader.Wait)
	t.Cleanup(func() { _ = packets.Close() })
	return s
}

func (s *server) accept(t *testing.T, listener net.Listener) {
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			readers.Go(func() {
				defer func() { _ = connection.Close() }()
				for lines := bufio.NewScanner(connection); lines.Scan(); {
					s.take(lines.Text())
				}
			})
		}
	})
	t.Cleanup(readers.Wait)
	t.Cleanup(func() { _ = listener.Close() })
}

func client(t *testing.T, options stats.ClientOptions) *stats.Client {
	t.Helper()
	c := stats.NewClient(options)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestFlush(t *testing.T) {
	for _, network := range []string{"udp", "tcp", "unixgram"} {
		t.Run(network, func(t *testing.T) {
			s := listen(t, network)
			lines := client(t, stats.ClientOptions{Network: network, Address: s.address})
			c := count(t, stats.Options{MaxValues: 10}, one)
			flusher := c.NewFlusher(lines)
			c.hit("edge", "user=ann", 3)
			c.UnknownDomain("who", 2)
			c.Called(false, 1500*time.Microsecond)
			c.RulesLoaded()
			flusher.Flush()
			want := []string{
				"ratelimit.service.config_load_success:1|c",
				"ratelimit.service.rate_limit.edge.user.total_hits:3|c",
				"ratelimit.service.rate_limit.edge.user.within_limit:3|c",
				"ratelimit.service.rate_limit.who.domain_not_found:2|c",
				"ratelimit_server.ShouldRateLimit.response_time:1.5|ms",
				"ratelimit_server.ShouldRateLimit.total_requests:1|c",
			}
			if got := s.lines(t, len(want)); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			c.hit("edge", "user=ann", 2)
			flusher.Flush()
			flusher.Flush() // nothing more to say
			want = append(want, "ratelimit.service.rate_limit.edge.user.total_hits:2|c", "ratelimit.service.rate_limit.edge.user.within_limit:2|c")
			slices.Sort(want)
			if got := s.lines(t, len(want)); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if lost := lines.Lost(); lost != 0 {
				t.Errorf("%d lines are lost, want none", lost)
			}
		})
	}
}

// What a rule has counted is sent although the rule is gone.
func TestFlushOfRetiredRules(t *testing.T) {
	s := listen(t, "tcp")
	c := count(t, stats.Options{MaxValues: 10}, `
domain: edge
descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 10}}]
`)
	flusher := c.NewFlusher(client(t, stats.ClientOptions{Network: "tcp", Address: s.address}))
	c.hit("edge", "user=ann", 1)
	c.load("domain: edge\ndescriptors: [{key: path, rate_limit: {unit: day, requests_per_unit: 10}}]")
	c.expect("")
	c.hit("edge", "path=/a", 2)
	flusher.Flush()
	want := []string{
		"ratelimit.service.rate_limit.edge.path.total_hits:2|c", "ratelimit.service.rate_limit.edge.path.within_limit:2|c",
		"ratelimit.service.rate_limit.edge.user_ann.total_hits:1|c", "ratelimit.service.rate_limit.edge.user_ann.within_limit:1|c",
	}
	if got := s.lines(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTags(t *testing.T) {
	mogrifier, err := stats.ParseMogrifier(`^ratelimit\.service\.rate_limit\.([^.]+)\.(.*)\.([^.]+)$ => ratelimit.$3 domain:$1,descriptor:$2,odd:$7`)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		options stats.ClientOptions
		want    []string
	}{
		"statsd": {
			stats.ClientOptions{Tags: []string{"VERSION:1.2", "COMMIT:abc"}, Mogrifiers: []stats.Mogrifier{mogrifier}},
			[]string{
				"ratelimit.service.rate_limit.edge.user.total_hits.__COMMIT=abc.__VERSION=1_2:1|c",
				"ratelimit.service.rate_limit.edge.user.within_limit.__COMMIT=abc.__VERSION=1_2:1|c",
				"ratelimit_server.ShouldRateLimit.response_time.__COMMIT=abc.__VERSION=1_2:2|ms",
				"ratelimit_server.ShouldRateLimit.total_requests.__COMMIT=abc.__VERSION=1_2:1|c",
			},
		},
		"dogstatsd": {
			stats.ClientOptions{Dialect: stats.DogStatsD, Tags: []string{"VERSION:1.2"}, Mogrifiers: []stats.Mogrifier{mogrifier}},
			[]string{
				"ratelimit.total_hits:1|c|#VERSION:1.2,domain:edge,descriptor:user,odd:$7",
				"ratelimit.within_limit:1|c|#VERSION:1.2,domain:edge,descriptor:user,odd:$7",
				"ratelimit_server.ShouldRateLimit.response_time:2|ms|#VERSION:1.2",
				"ratelimit_server.ShouldRateLimit.total_requests:1|c|#VERSION:1.2",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := listen(t, "udp")
			c.options.Network, c.options.Address = "udp", s.address
			counted := count(t, stats.Options{}, one)
			flusher := counted.NewFlusher(client(t, c.options))
			counted.hit("edge", "user=ann", 1)
			counted.Called(false, 2*time.Millisecond)
			flusher.Flush()
			if got := s.lines(t, len(c.want)); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// Many lines are sent in several packets, and none is torn.
func TestManyLines(t *testing.T) {
	s := listen(t, "udp")
	lines := client(t, stats.ClientOptions{Network: "udp", Address: s.address})
	c := count(t, stats.Options{MaxValues: 100}, `
domain: edge
descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 10}}]
`)
	flusher := c.NewFlusher(lines)
	for i := range 100 {
		c.hit("edge", "user="+strconv.Itoa(i), 1)
	}
	flusher.Flush()
	for _, line := range s.lines(t, 200) {
		if !strings.HasPrefix(line, "ratelimit.service.rate_limit.edge.user_") || !strings.HasSuffix(line, ":1|c") {
			t.Fatalf("a torn line: %q", line)
		}
	}
}

// A sample of the durations is sent, marked with the part that it is.
func TestSampledDurations(t *testing.T) {
	s := listen(t, "tcp")
	c := count(t, stats.Options{}, one)
	flusher := c.NewFlusher(client(t, stats.ClientOptions{Network: "tcp", Address: s.address}))
	for range 5120 {
		c.Called(false, time.Millisecond)
	}
	flusher.Flush()
	got := s.lines(t, 513)
	if want := "ratelimit_server.ShouldRateLimit.response_time:1|ms|@0.1"; len(got) != 513 || got[0] != want || got[511] != want {
		t.Errorf("%d lines, the first %q, want 513 and %q", len(got), got[0], want)
	}
}

func TestBadMogrifiers(t *testing.T) {
	for _, text := range []string{"", "a", "a =>", " => b", "( => b", "a => b c", "a => b c:"} {
		if _, err := stats.ParseMogrifier(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

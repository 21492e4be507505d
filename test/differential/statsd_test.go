package differential

import (
	"bufio"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// statsd adds up the counters that a server sends.
type statsd struct {
	listener net.Listener
	mu       sync.Mutex
	counters map[string]int64
}

func listenStatsd(t testing.TB) *statsd {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &statsd{listener: listener, counters: map[string]int64{}}
	var readers sync.WaitGroup
	readers.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			readers.Go(func() { s.read(connection) })
		}
	})
	t.Cleanup(readers.Wait) // the servers have ended by then
	t.Cleanup(func() { _ = listener.Close() })
	return s
}

func (s *statsd) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *statsd) read(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	lines := bufio.NewScanner(connection)
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		value, kind, _ := strings.Cut(rest, "|")
		if kind != "c" {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		s.mu.Lock()
		s.counters[name] += n
		s.mu.Unlock()
	}
}

// of returns the counters that are not 0 and whose names begin with the prefix.
func (s *statsd) of(prefix string) map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string]int64{}
	for name, value := range s.counters {
		if value != 0 && strings.HasPrefix(name, prefix) {
			found[name] = value
		}
	}
	return found
}

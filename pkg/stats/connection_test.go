package stats

import (
	"io"
	"net"
	"testing"
	"time"
)

// A server that is away costs lines, which are counted, and no waiting; one that comes back is found.
func TestDeadServer(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()

	c := NewClient(ClientOptions{Network: "tcp", Address: address})
	t.Cleanup(func() { _ = c.Close() })
	s := New(Options{})
	flusher := s.NewFlusher(c)
	flush := func() {
		s.RulesLoaded()
		s.RulesRefused()
		flusher.Flush()
	}
	for want := uint64(2); want <= 10; want += 2 {
		flush()
		if c.Lost() != want {
			t.Fatalf("%d lines are lost, want %d", c.Lost(), want)
		}
	}
	if !c.connection.away.After(time.Now()) {
		t.Error("a server that is away is tried at every flush")
	}

	if listener, err = new(net.ListenConfig).Listen(t.Context(), "tcp", address); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c.connection.away = time.Time{} // the time has passed
	flush()
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	got, err := io.ReadAll(accepted)
	want := "ratelimit.service.config_load_error:1|c\nratelimit.service.config_load_success:1|c\n"
	if err != nil || string(got) != want || c.Lost() != 10 {
		t.Errorf("it got %q, %v, and %d lines are lost; want %q and 10", got, err, c.Lost(), want)
	}
}

// A server that does not read blocks a flush for a bounded time, and then costs lines.
func TestServerThatDoesNotRead(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	c := NewClient(ClientOptions{Network: "tcp", Address: listener.Addr().String()})
	t.Cleanup(func() { _ = c.Close() })
	began := time.Now()
	for c.Lost() == 0 && time.Since(began) < 30*time.Second {
		for range 1000 {
			c.timing("a.name.that.is.rather.long.so.that.the.buffers.are.full.soon", time.Second, 1)
		}
		c.flush()
	}
	if c.Lost() == 0 {
		t.Error("no line is lost although nobody reads")
	}
}

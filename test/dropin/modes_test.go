package dropin

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// SHADOW_MODE counts and denies nothing.
func TestShadowMode(t *testing.T) {
	s := start(t, "SHADOW_MODE=true", "RUNTIME_ROOT="+runtime(t, rulesText("edge", 1)), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")
	connection := dial(t, s.grpc)
	for range 3 {
		if !allowed(t, connection, "edge", "generic_key=a") {
			t.Error("a request is denied in shadow mode")
		}
	}
	if _, body := s.get(s.debug, "/stats"); !strings.Contains(body, "rate_limit.edge.generic_key.over_limit: 2\n") {
		t.Errorf("nothing is counted in shadow mode:\n%s", body)
	}
}

// RESPONSE_DYNAMIC_METADATA repeats the request.
func TestDynamicMetadata(t *testing.T) {
	s := start(t, "RESPONSE_DYNAMIC_METADATA=true", "RUNTIME_ROOT="+runtime(t, rulesText("edge", 1)), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")
	reply, err := ask(t, dial(t, s.grpc), "edge", "generic_key=a")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(reply.GetDynamicMetadata().AsMap()); got != "map[descriptors:[map[entries:[generic_key=a]]] domain:edge quotaModeEnabled:false]" {
		t.Errorf("the metadata are %s", got)
	}
}

// Statistics go over TCP to the statsd server of STATSD_HOST and STATSD_PORT, with the tags in their names.
func TestStatsd(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines, done := make(chan string, 10_000), make(chan struct{})
	go func() {
		defer close(done)
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		for scanner := bufio.NewScanner(connection); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	s := start(t, "STATSD_HOST=127.0.0.1", "STATSD_PORT="+portOf(listener.Addr().String()), "STATS_FLUSH_INTERVAL=100ms", "EXTRA_TAGS=region:eu",
		"RUNTIME_ROOT="+runtime(t, rulesText("edge", 1)), "RUNTIME_SUBDIRECTORY=ratelimit")
	if !allowed(t, dial(t, s.grpc), "edge", "generic_key=a") {
		t.Error("a request is denied")
	}
	servers.Eventually(t, "the statistics come", func() bool {
		select {
		case line := <-lines:
			return strings.HasPrefix(line, "ratelimit.service.rate_limit.edge.generic_key.total_hits") && strings.Contains(line, ".__region=eu:1|c")
		default:
			return false
		}
	})
	s.process.Kill()
	_ = listener.Close()
	<-done
}

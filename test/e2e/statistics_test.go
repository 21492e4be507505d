package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/test/servers"
)

// statsd adds up what a server sends.
type statsd struct {
	address  string
	mu       sync.Mutex
	counters map[string]int64
	timings  map[string]int64
}

func listenStatsd(t *testing.T) *statsd {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &statsd{address: listener.Addr().String(), counters: map[string]int64{}, timings: map[string]int64{}}
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

func (s *statsd) read(connection net.Conn) {
	defer func() { _ = connection.Close() }()
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		text, kind, _ := strings.Cut(rest, "|")
		s.mu.Lock()
		if n, err := strconv.ParseInt(text, 10, 64); kind == "c" && err == nil {
			s.counters[name] += n
		} else {
			s.timings[name]++
		}
		s.mu.Unlock()
	}
}

// decisions returns what was counted of rules and calls.
func (s *statsd) decisions() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := maps.Clone(s.counters)
	maps.DeleteFunc(found, func(name string, _ int64) bool {
		return !strings.HasPrefix(name, "ratelimit.service.") && name != "ratelimit_server.ShouldRateLimit.total_requests" ||
			strings.HasPrefix(name, "ratelimit.service.config_load_")
	})
	return found
}

// ruleMaker makes rules and requests of a few keys and values, so that they often meet.
type ruleMaker struct {
	*rand.Rand
	named *int // rules that have a name so far
}

var (
	madeKeys   = []string{"user", "path", "tier"}
	madeValues = []string{"a", "b", "abc", "10.1.2.3", "x:y|z", ""}
	madeRules  = []string{"a*", "1*", "a", "b", "abc", "10.1.2.3", "x:y|z", "", ""}
)

func pick[T any](r ruleMaker, from []T) T { return from[r.IntN(len(from))] }

// descriptors writes some definitions at a depth.
func (r ruleMaker) descriptors(b *strings.Builder, depth int) {
	indent := strings.Repeat("  ", depth)
	seen := map[string]bool{}
	for range 2 + r.IntN(5) {
		key, value := pick(r, madeKeys), pick(r, madeRules)
		if seen[key+value] {
			continue
		}
		seen[key+value] = true
		fmt.Fprintf(b, "%s- key: %s\n", indent, key)
		if value != "" {
			fmt.Fprintf(b, "%s  value: %q\n", indent, value)
		}
		for _, flag := range []string{"shadow_mode", "detailed_metric", "value_to_metric"} {
			if r.IntN(4) == 0 {
				fmt.Fprintf(b, "%s  %s: true\n", indent, flag)
			}
		}
		if strings.HasSuffix(value, "*") && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%s  share_threshold: true\n", indent)
		}
		switch r.IntN(8) {
		case 0:
		case 1:
			fmt.Fprintf(b, "%s  rate_limit: {unlimited: true}\n", indent)
		default:
			fmt.Fprintf(b, "%s  rate_limit: {unit: year, requests_per_unit: %d%s}\n", indent, r.IntN(20), r.replacing())
		}
		if depth < 3 && r.IntN(2) == 0 {
			fmt.Fprintf(b, "%s  descriptors:\n", indent)
			r.descriptors(b, depth+1)
		}
	}
}

// replacing gives some rules names, and has some of these replace one before them.
func (r ruleMaker) replacing() string {
	if r.IntN(4) > 0 {
		return ""
	}
	*r.named++
	text := fmt.Sprintf(", name: rule%d", *r.named)
	if *r.named > 1 && r.IntN(2) == 0 {
		text += fmt.Sprintf(", replaces: [{name: rule%d}]", 1+r.IntN(*r.named-1))
	}
	return text
}

func (r ruleMaker) request(domain string) *rlsv3.RateLimitRequest {
	request := &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: uint32(r.IntN(4))}
	for range 1 + r.IntN(3) {
		descriptor := &commonv3.RateLimitDescriptor{}
		for range 1 + r.IntN(3) {
			descriptor.Entries = append(descriptor.Entries, &commonv3.RateLimitDescriptor_Entry{Key: pick(r, madeKeys), Value: pick(r, madeValues)})
		}
		switch r.IntN(12) {
		case 0:
			descriptor.HitsAddend = wrapperspb.UInt64(uint64(r.IntN(5)))
		case 1:
			descriptor.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_MONTH}
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	return request
}

// The reference and weir count the same, by the same names, for the same requests under the same rules: wherever weir counts.
func TestStatisticsOfTheReference(t *testing.T) {
	t.Run("memory", func(t *testing.T) { compareStatistics(t, nil) })
	t.Run("Redis", func(t *testing.T) {
		compareStatistics(t, map[string]string{"redis.url": "redis://" + servers.Redis(t).Addr(), "redis.deny_cache": "0"})
	})
	t.Run("keys of the reference", func(t *testing.T) {
		compareStatistics(t, map[string]string{"redis.url": "redis://" + servers.Redis(t).Addr(), "redis.deny_cache": "0", "ratelimit.key_format": "envoyproxy"})
	})
}

func compareStatistics(t *testing.T, settings map[string]string) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := ruleMaker{rand.New(rand.NewPCG(seed, 0)), new(int)}
	domains := []string{"edge", "default/eg/http", "a.b:c", "other"}
	rules := map[string]string{}
	for i, domain := range domains[:3] {
		var b strings.Builder
		fmt.Fprintf(&b, "domain: %q\ndescriptors:\n", domain)
		*r.named = 0
		r.descriptors(&b, 1)
		rules["rules"+strconv.Itoa(i)+".yaml"] = b.String()
	}

	ratio := pick(r, []string{"0.5", "0.7", "0.8", "1"})

	reference, weir := listenStatsd(t), listenStatsd(t)
	set := map[string]string{
		"statsd.address": "tcp://" + weir.address, "statsd.flush_interval": "100ms", "metrics.max_values": "100000",
		"ratelimit.near_limit_ratio": ratio,
	}
	maps.Copy(set, settings)
	asked := []rlsv3.RateLimitServiceClient{
		startReference(t, rules, reference, "NEAR_LIMIT_RATIO="+ratio),
		clientOf(servers.Weir(t, servers.WeirOptions{Rules: rules, Set: set})),
	}
	for range 2000 {
		request := r.request(pick(r, domains))
		for _, client := range asked {
			if _, err := client.ShouldRateLimit(t.Context(), request); err != nil {
				t.Fatalf("%v: %v", request, err)
			}
		}
	}
	defer func() {
		if t.Failed() {
			for _, name := range slices.Sorted(maps.Keys(rules)) {
				t.Log(rules[name])
			}
			t.Log(differences(reference.decisions(), weir.decisions()))
		}
	}()
	servers.Eventually(t, "equal statistics", func() bool {
		got := reference.decisions()
		return got["ratelimit_server.ShouldRateLimit.total_requests"] == 2000 && maps.Equal(got, weir.decisions())
	})
	weir.mu.Lock()
	defer weir.mu.Unlock()
	if weir.timings["ratelimit_server.ShouldRateLimit.response_time"] == 0 {
		t.Error("no response time came")
	}
}

func differences(reference, weir map[string]int64) string {
	var b strings.Builder
	all := maps.Clone(reference)
	maps.Copy(all, weir)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if reference[name] != weir[name] {
			fmt.Fprintf(&b, "%s: %d, by weir %d\n", name, reference[name], weir[name])
		}
	}
	return b.String()
}

// startReference runs envoyproxy/ratelimit.
func startReference(t *testing.T, rules map[string]string, to *statsd, env ...string) rlsv3.RateLimitServiceClient {
	t.Helper()
	path := filepath.Join(servers.Root(t), "build", "peers", "ratelimit")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("envoyproxy/ratelimit is not there: run make bench-peers: %v", err)
	}
	root := t.TempDir()
	folder := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(folder, 0o750); err != nil {
		t.Fatal(err)
	}
	for name, text := range rules {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, statsdPort, _ := net.SplitHostPort(to.address)
	for range 5 {
		web, calls, debug := servers.FreePort(t), servers.FreePort(t), servers.FreePort(t)
		command := exec.Command(path) //nolint:noctx // the process's own cleanup ends it
		command.Dir = t.TempDir()
		command.Env = append(os.Environ(), "HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
			"PORT="+strconv.Itoa(web), "GRPC_PORT="+strconv.Itoa(calls), "DEBUG_PORT="+strconv.Itoa(debug),
			"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+servers.Redis(t).Addr(), "RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit",
			"RUNTIME_WATCH_ROOT=false", "USE_STATSD=true", "STATSD_HOST=127.0.0.1", "STATSD_PORT="+statsdPort, "STATS_FLUSH_INTERVAL=100ms")
		command.Env = append(command.Env, env...)
		process := servers.StartCommand(t, "ratelimit", command)
		connection, err := grpc.NewClient(servers.Address(calls), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		if process.Await(t, func() bool {
			probe, err := new(net.Dialer).DialContext(t.Context(), "tcp", servers.Address(calls))
			if err == nil {
				_ = probe.Close()
			}
			return err == nil
		}) {
			return rlsv3.NewRateLimitServiceClient(connection)
		}
	}
	t.Fatal("envoyproxy/ratelimit did not start")
	return nil
}

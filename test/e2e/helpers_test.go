package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/test/servers"
)

// request asks for one descriptor, written as "k=v,k=v", of a domain.
func request(domain, descriptor string) *rlsv3.RateLimitRequest {
	entries := &commonv3.RateLimitDescriptor{}
	for entry := range strings.SplitSeq(descriptor, ",") {
		key, value, _ := strings.Cut(entry, "=")
		entries.Entries = append(entries.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*commonv3.RateLimitDescriptor{entries}}
}

// peek is the same request at no cost.
func peek(request *rlsv3.RateLimitRequest) *rlsv3.RateLimitRequest {
	look := proto.CloneOf(request)
	for _, descriptor := range look.GetDescriptors() {
		descriptor.HitsAddend = wrapperspb.UInt64(0)
	}
	return look
}

// ask returns whether the request is allowed.
func ask(t testing.TB, client rlsv3.RateLimitServiceClient, request *rlsv3.RateLimitRequest) bool {
	t.Helper()
	reply, err := client.ShouldRateLimit(t.Context(), request)
	if err != nil {
		t.Fatalf("ShouldRateLimit: %v", err)
	}
	return reply.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT
}

// load is many callers that ask without a pause until stopped. A call that fails is an error of the test.
type load struct {
	Allowed, Denied atomic.Int64

	stop    context.CancelFunc
	callers sync.WaitGroup
	mu      sync.Mutex
	times   []time.Duration
}

// startLoad starts callers; each takes its requests from next.
func startLoad(t *testing.T, clients []rlsv3.RateLimitServiceClient, callers int, next func() *rlsv3.RateLimitRequest) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &load{stop: stop}
	for i := range callers {
		l.callers.Go(func() {
			var times []time.Duration
			for ctx.Err() == nil {
				start := time.Now()
				reply, err := clients[i%len(clients)].ShouldRateLimit(t.Context(), next())
				times = append(times, time.Since(start))
				switch {
				case err != nil:
					t.Errorf("a call failed: %v", err)
					return
				case reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT:
					l.Denied.Add(1)
				default:
					l.Allowed.Add(1)
				}
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			l.times = append(l.times, times...)
		})
	}
	t.Cleanup(func() { l.Stop() })
	return l
}

// Stop ends the load and returns how long each call took, the slowest last.
func (l *load) Stop() []time.Duration {
	l.stop()
	l.callers.Wait()
	slices.Sort(l.times)
	return l.times
}

func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

// figure logs something that was measured.
func figure(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Logf("figure: "+format, args...)
}

// answer is what an HTTP client got.
type answer struct {
	status int
	header http.Header
	body   string
}

// get sends a request through a gateway.
func get(t testing.TB, url string, headers ...string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, string(body)}
}

// clientOf returns a client of a server, over a connection of its own.
func clientOf(server *servers.WeirServer) rlsv3.RateLimitServiceClient {
	return rlsv3.NewRateLimitServiceClient(server.Dial())
}

// counter hands out numbers that no one else of this test process has, to keep keys apart.
var counter atomic.Int64

func unique(name string) string { return fmt.Sprintf("%s-%d", name, counter.Add(1)) }

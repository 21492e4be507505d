package k1s0

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/rulestore"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

// fileRules are what every test's server has in a rule file.
const fileRules = `
domain: k1s0
descriptors:
  - {key: user, value: from-file, name: fixed, id: 018f3f5e-0000-7000-8000-000000000001, limits: [{algorithm: fixed_window, limit: 3, window: 30d}]}
  - {key: user, value: "vip-*", limits: [{algorithm: fixed_window, limit: 5, window: 30d}, {algorithm: fixed_window, limit: 2, window: 1d, kind: quota}]}
  - {key: user, value: "shared-*", share_threshold: true, limits: [{algorithm: fixed_window, limit: 4, window: 30d}]}
  - {key: user, value: "blocked-*", action: deny}
  - {key: user, value: "free-*", action: allow}
  - {key: user, value: "shadow-*", shadow_mode: true, limits: [{algorithm: fixed_window, limit: 1, window: 1d}, {algorithm: fixed_window, limit: 1, window: 30d}]}
  - {key: user, value: "closed-*", on_store_failure: deny, limits: [{limit: 10, window: 1h}]}
  - {key: address, match: {cidr: 10.0.0.0/8}, limits: [{limit: 10, window: 1h}]}
  - {key: plan, value: free, descriptors: [{key: user, name: nested, limits: [{algorithm: fixed_window, limit: 2, window: 30d}]}]}
---
domain: edge
default: {limits: [{limit: 50, window: 1m}]}
descriptors:
  - {key: user, limits: [{algorithm: fixed_window, limit: 2, window: 30d}]}
  - {key: path, limits: [{algorithm: fixed_window, limit: 1, window: 30d}]}
  - {key: off, enabled: false, limits: [{limit: 1, window: 1m}]}
`

// fileRuleID is the ID of the first of fileRules.
const fileRuleID = "018f3f5e-0000-7000-8000-000000000001"

// missingID is an ID that no rule has.
const missingID = "018f3f5e-0000-7000-8000-ffffffffffff"

// people knows a token for each role.
type people struct{}

var rolesOf = map[string]auth.Role{
	"admin": auth.Admin, "operator": auth.Operator, "auditor": auth.Auditor, "nobody": auth.NoRole,
}

func (people) Authorize(_ context.Context, bearer string, required auth.Role) (auth.Principal, error) {
	switch role, known := rolesOf[bearer]; {
	case bearer == "":
		return auth.Principal{}, auth.ErrNoToken
	case bearer == "issuer-away":
		return auth.Principal{}, fmt.Errorf("%w: dial tcp 10.1.2.3", auth.ErrUnavailable)
	case !known:
		return auth.Principal{}, fmt.Errorf("%w: the token is not known", auth.ErrUnauthenticated)
	case !role.Allows(required):
		return auth.Principal{Subject: bearer}, fmt.Errorf("%w: this needs the role %s", auth.ErrForbidden, required)
	default:
		return auth.Principal{Subject: bearer, Role: role, Via: auth.ViaToken}, nil
	}
}

// brokenStore fails every call, or gives the answers of a failure mode.
type brokenStore struct{ mode ratelimit.FailureMode }

func (b brokenStore) Take(_ context.Context, charges []ratelimit.Charge) {
	for i := range charges {
		c := &charges[i]
		mode := c.OnFailure
		if mode == ratelimit.FailureDefault {
			mode = b.mode
		}
		c.Degraded = mode
		for j := range c.Results {
			c.Results[j] = ratelimit.Result{Allowed: true, Granted: c.Hits[j].Cost, Remaining: c.Hits[j].Limit.Capacity()}
			if mode == ratelimit.FailClosed {
				c.Results[j] = ratelimit.Result{RetryAfter: time.Second, ResetAfter: time.Second}
			}
		}
	}
}

func (brokenStore) Reset(context.Context, []string) error {
	return fmt.Errorf("dial tcp 10.1.2.3:6379: connection refused")
}

// server is a whole API with its rule store and counters.
type server struct {
	t       testing.TB
	service *Service
	set     *ruleset.Set
	store   rulestore.Store
	limiter *engine.Limiter
	http    *httptest.Server
	rules   string // its folder
	log     *logBuffer
}

type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// setting changes how a server is made.
type setting func(*Options)

func withCounters(store engine.Store) setting {
	return func(o *Options) {
		o.Limiter = engine.New(store, engine.Options{})
	}
}

func withoutStore(o *Options) { o.Store = nil }

func newServer(t testing.TB, settings ...setting) *server {
	t.Helper()
	return newServerOf(t, fileRules, settings...)
}

func newServerOf(t testing.TB, text string, settings ...setting) *server {
	t.Helper()
	s := &server{t: t, rules: t.TempDir(), log: &logBuffer{}}
	s.writeRules(text)
	counters := memstore.New(memstore.Options{})
	t.Cleanup(counters.Close)
	logger := slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	store, err := rulestore.OpenSQLite(rulestore.SQLiteOptions{
		Options: rulestore.Options{Logger: logger}, Path: filepath.Join(t.TempDir(), "rules.db"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	headers, err := respond.New(respond.Options{Styles: respond.XRateLimit | respond.IETF})
	if err != nil {
		t.Fatal(err)
	}
	byDefault := ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 100, Window: time.Hour}
	if err := byDefault.Check(); err != nil {
		t.Fatal(err)
	}
	options := Options{
		Limiter: engine.New(counters, engine.Options{}), Store: store, Auth: people{}, Default: byDefault, Headers: headers, Logger: logger,
		Hash: func(identifier string) string { return fmt.Sprintf("hash of %d bytes", len(identifier)) },
	}
	for _, set := range settings {
		set(&options)
	}
	s.limiter, s.store = options.Limiter, options.Store
	if s.set, err = ruleset.New(ruleset.Options{
		Paths: []string{s.rules}, Rules: rules.Options{}, Default: byDefault, Install: s.limiter.SetTable, Logger: logger,
	}); err != nil {
		t.Fatal(err)
	}
	if s.store != nil {
		s.set.Follow(s.store)
	}
	s.set.Load(t.Context())
	options.Rules = s.set
	s.service = New(options)
	s.http = httptest.NewServer(s.service.Handler())
	t.Cleanup(s.http.Close)
	return s
}

func (s *server) writeRules(text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.rules, "rules.yaml"), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request; headers are names and values in turn.
func (s *server) send(method, path, token, body string, headers ...string) reply {
	s.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, content)
	if err != nil {
		s.t.Fatal(err)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply{response.StatusCode, response.Header, string(text)}
}

// client returns a gRPC client.
func (s *server) client(options ...grpc.DialOption) pb.RateLimitServiceClient {
	s.t.Helper()
	listener, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	server := grpc.NewServer()
	Register(server, s.service)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	connection, err := grpc.NewClient(listener.Addr().String(), append(options, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = connection.Close()
		server.Stop()
		serving.Wait()
	})
	return pb.NewRateLimitServiceClient(connection)
}

// create stores a rule and returns it.
func (s *server) create(scope, pattern string, limit int64) *Rule {
	s.t.Helper()
	rule, err := s.service.Create(s.t.Context(), Caller{Subject: "tester"}, RuleInput{
		Scope: scope, Pattern: pattern, Limit: limit, WindowSeconds: 86400, Algorithm: "fixed_window", Enabled: true,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return rule
}

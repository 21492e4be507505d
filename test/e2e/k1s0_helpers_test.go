package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rulestore"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
	"github.com/weirhq/weir/test/servers"
)

const api = "/api/v1/ratelimit"

// tokens writes a token file and returns its path and the tokens by their role.
func tokens(t testing.TB) (path string, byRole map[auth.Role]string) {
	t.Helper()
	byRole = map[auth.Role]string{}
	text := "tokens:\n"
	for _, role := range []auth.Role{auth.Auditor, auth.Operator, auth.Admin} {
		token, hash := auth.NewToken()
		byRole[role] = token
		text += fmt.Sprintf("  - {subject: the-%s, role: %s, hash: %q}\n", role, role, hash)
	}
	path = filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, byRole
}

// client keeps connections for all callers of a test.
func restClient(t testing.TB, callers int) *http.Client {
	transport := &http.Transport{MaxIdleConns: callers, MaxIdleConnsPerHost: callers}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// rest calls the REST API; status 0 with the error as body where there was no answer.
func rest(ctx context.Context, client *http.Client, weir *servers.WeirServer, method, path, token, body string, headers ...string) answer {
	request, err := http.NewRequestWithContext(ctx, method, weir.HTTP()+api+path, strings.NewReader(body))
	if err != nil {
		return answer{body: err.Error()}
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
	response, err := client.Do(request)
	if err != nil {
		return answer{body: err.Error()}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer{body: err.Error()}
	}
	return answer{response.StatusCode, response.Header, string(text)}
}

// call is rest for what must be answered with a status.
func call(t testing.TB, weir *servers.WeirServer, status int, method, path, token, body string, headers ...string) answer {
	t.Helper()
	got := rest(t.Context(), http.DefaultClient, weir, method, path, token, body, headers...)
	if got.status != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got.status, got.body, status)
	}
	return got
}

// decision is the answer to a check over REST.
type decision struct {
	Allowed   bool   `json:"allowed"`
	Remaining int64  `json:"remaining"`
	Limit     int64  `json:"limit"`
	Reason    string `json:"reason"`
	RuleID    string `json:"rule_id"`
}

func decoded[T any](t testing.TB, got answer) (value T) {
	t.Helper()
	if err := json.Unmarshal([]byte(got.body), &value); err != nil {
		t.Fatalf("%s: %v", got.body, err)
	}
	return value
}

func apiClient(weir *servers.WeirServer) pb.RateLimitServiceClient {
	return pb.NewRateLimitServiceClient(weir.Dial())
}

// inPostgres are the settings of a server whose rules are in a database, and which trusts everybody.
func inPostgres(database *servers.PostgresDatabase) map[string]string {
	return map[string]string{
		"database.host": database.Host(), "database.port": fmt.Sprint(database.Port()), "database.name": database.Name,
		"database.user": servers.PostgresUser, "database.password": servers.PostgresPassword, "database.ssl_mode": "disable",
		"auth.insecure": "true",
	}
}

// openStore opens the rules in a database for the test's own needs.
func openStore(t testing.TB, database *servers.PostgresDatabase) rulestore.Store {
	t.Helper()
	store, err := rulestore.OpenPostgres(rulestore.PostgresOptions{
		Host: database.Host(), Port: uint16(database.Port()), Name: database.Name, User: servers.PostgresUser, SSLMode: "disable",
		Password: func() (string, error) { return servers.PostgresPassword, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// fill makes n rules for users.
func fill(t testing.TB, store rulestore.Store, n int) {
	t.Helper()
	for first := 0; first < n; first += rulestore.MaxChanges {
		var changes []rulestore.Change
		for i := first; i < min(n, first+rulestore.MaxChanges); i++ {
			changes = append(changes, rulestore.Change{Action: rulestore.Create, Rule: rulestore.Rule{
				Scope: "user", IdentifierPattern: fmt.Sprintf("user-%06d", i), Limit: int64(i%100 + 1), WindowSeconds: 3600,
				Algorithm: ratelimit.TokenBucket, Enabled: true,
			}})
		}
		if _, err := store.Apply(t.Context(), changes, rulestore.Actor{Subject: "test"}); err != nil {
			t.Fatal(err)
		}
	}
}

// runServe runs a server that must not start, and returns what it prints.
func runServe(t testing.TB, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), servers.WeirBinary(t), append([]string{"serve"}, args...)...)
	command.Dir = t.TempDir()
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("ended with %v, want exit status 2", err)
	}
	return string(output)
}

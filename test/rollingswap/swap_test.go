package rollingswap

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// between is how many requests at least are answered between two replacements.
const between = 400

// Two replicas of each, then all of weir, all of envoyproxy/ratelimit, and two of each again: no more than the limit is ever admitted, no less, and no call fails.
func TestReplacedOneByOne(t *testing.T) {
	root := t.TempDir()
	config := filepath.Join(root, "ratelimit", "config")
	if err := os.MkdirAll(config, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(config, "edge.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := servers.Redis(t)
	theirs, ours := kinds(t)
	var replicas []*replica
	for _, k := range []kind{theirs, theirs, ours, ours} {
		replicas = append(replicas, run(t, k, redis, root))
	}
	envoy, endpoints := newEnvoy(t, servers.Upstream(t), replicas)

	l := &load{url: envoy.URL("ingress"), asked: map[string]int{}, admitted: map[string]int{}, failed: map[int]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range workers {
		running.Go(func() { l.run(ctx, t) })
	}
	some := func() {
		t.Helper()
		until := l.answered() + between
		servers.Eventually(t, "requests are answered", func() bool { return l.answered() >= until })
	}
	some()
	for _, replacement := range []kind{ours, ours, theirs, theirs, theirs, theirs, ours, ours} {
		leaving := slices.IndexFunc(replicas, func(r *replica) bool { return r.kind != replacement })
		gone := replicas[leaving]
		replicas = append(slices.Delete(replicas, leaving, leaving+1), run(t, replacement, redis, root))
		endpoints.set(replicas)
		gone.stop(t)
		some()
	}
	cancel()
	running.Wait()

	if len(l.failed) > 0 {
		t.Errorf("%v calls failed, by status", l.failed)
	}
	if errors := envoy.Stat("cluster.ratelimit.ratelimit.error"); errors != 0 {
		t.Errorf("Envoy counts %d failed calls", errors)
	}
	for user, asked := range l.asked {
		most := limit
		if user == "steady" {
			most = steadyLimit
		}
		if got, want := l.admitted[user], min(asked, most); got != want {
			t.Errorf("%d of %d requests of %s were admitted, want %d", got, asked, user, want)
		}
	}
	t.Logf("figure: %d requests of %d users during 8 replacements, none failed", l.answered(), len(l.asked))
}

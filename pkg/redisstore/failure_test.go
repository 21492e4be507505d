package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

const (
	// deadline is what calls are given in tests of a Redis that does not answer.
	deadline = 100 * time.Millisecond
	// lateness is how much later than its deadline a call may come back on a busy machine.
	lateness = time.Second
)

// punctual takes one hit and fails the test if that took longer than the deadline.
func punctual(t testing.TB, store *redisstore.Store, hit ratelimit.Hit) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	began := time.Now()
	c := take(ctx, store, hit)
	if took := time.Since(began); took > deadline+lateness {
		t.Errorf("a call with a deadline of %v took %v (%v)", deadline, took, c.Err)
	}
	return c.Err
}

// crowd runs f in n goroutines and waits for them.
func crowd(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

// recovered waits until the store counts again.
func recovered(t testing.TB, store *redisstore.Store, hit ratelimit.Hit, within time.Duration) {
	t.Helper()
	began := time.Now()
	var err error
	for time.Since(began) < within {
		if err = take(t.Context(), store, hit).Err; err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("not recovered after %v: %v", within, err)
}

func TestPausedServer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr(), PoolSize: 5})
	l := limit(t, ratelimit.TokenBucket, 1_000_000, time.Hour)
	crowd(20, func(int) {
		if c := take(t.Context(), store, one("paused:3600", l)); c.Err != nil {
			t.Error(c.Err)
		}
	})
	server.Pause()
	// More callers than connections, so that some wait for one.
	crowd(50, func(int) {
		if err := punctual(t, store, one("paused:3600", l)); !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	})
	if open := store.Stats().Open; open > 5 {
		t.Errorf("%d connections are open, want at most the pool's 5", open)
	}
	if err := punctual(t, store, one("paused:3600", l)); !strings.Contains(fmt.Sprint(err), "no answer in time") {
		t.Errorf("error %q does not say that there was no answer", err)
	}
	server.Resume()
	recovered(t, store, one("paused:3600", l), 10*time.Second)
}

// A store that nobody gave a deadline has its own.
func TestOwnTimeout(t *testing.T) {
	t.Parallel()
	store := open(t, redisstore.Options{Addr: mute(t).Addr().String(), Timeout: deadline})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	began := time.Now()
	c := take(t.Context(), store, one("own:3600", l))
	if took := time.Since(began); took > deadline+lateness || !errors.Is(c.Err, redisstore.ErrUnavailable) {
		t.Errorf("%v after %v", c.Err, took)
	}
	if err := store.Ping(t.Context()); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("ping: %v", err)
	}
	if err := store.Reset(t.Context(), []string{"own:3600"}); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("reset: %v", err)
	}
}

// A dial that hangs, because the server's queue of new connections is full, does not hold the caller.
func TestDialHangs(t *testing.T) {
	t.Parallel()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := servers.Address(name.(*syscall.SockaddrInet4).Port)
	hangs := false
	for !hangs {
		c, err := (&net.Dialer{Timeout: deadline}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		hangs = err != nil
	}
	store := open(t, redisstore.Options{Addr: addr})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	for range 3 {
		if err := punctual(t, store, one("dial:3600", l)); !errors.Is(err, redisstore.ErrUnavailable) {
			t.Errorf("error %v, want ErrUnavailable", err)
		}
	}
}

func TestKilledServer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
	hit := one("killed:3600", l)
	crowd(50, func(int) {
		if c := take(t.Context(), store, hit); c.Err != nil {
			t.Error(c.Err)
		}
	})
	server.Kill()
	for range 100 {
		ctx, cancel := context.WithTimeout(t.Context(), patient)
		began := time.Now()
		c := take(ctx, store, hit)
		cancel()
		if took := time.Since(began); took > lateness || !errors.Is(c.Err, redisstore.ErrUnavailable) {
			t.Fatalf("%v after %v, want an error at once", c.Err, took)
		}
	}
	server.Restart()
	recovered(t, store, hit, 10*time.Second)
	for range 50 {
		if c := take(t.Context(), store, hit); c.Err != nil {
			t.Errorf("after it has recovered: %v", c.Err)
		}
	}
}

func TestStartsWithoutServer(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	server.Kill()
	store := open(t, redisstore.Options{Addr: server.Addr()})
	l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
	err := take(t.Context(), store, one("down:3600", l)).Err
	if !errors.Is(err, redisstore.ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "cannot connect") {
		t.Errorf("error %v, want a refused connection", err)
	}
	server.Restart()
	recovered(t, store, one("down:3600", l), 10*time.Second)
}

// A server behind which the line was cut: connections stay open, nothing is answered. Each connection that was idle would
// cost a caller its deadline, if the first one were no warning.
func TestHalfOpenConnections(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	between := newProxy(t, server.Addr())
	store := open(t, redisstore.Options{Addr: between.addr()})
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
	hit := one("half:3600", l)
	const connections = 5
	server.Pause()
	var waiting sync.WaitGroup
	servers.Eventually(t, "several connections are open", func() bool {
		waiting.Go(func() {
			if c := take(t.Context(), store, hit); c.Err != nil {
				t.Error(c.Err)
			}
		})
		return store.Stats().Open >= connections
	})
	server.Resume()
	waiting.Wait()
	if idle := store.Stats().Idle; idle < connections {
		t.Fatalf("%d idle connections, want %d", idle, connections)
	}
	between.hold()
	if err := punctual(t, store, hit); !errors.Is(err, redisstore.ErrUnavailable) {
		t.Fatalf("error %v, want ErrUnavailable", err)
	}
	// The line is mended for new connections; the old ones stay dead.
	between.release()
	crowd(10, func(int) {
		if c := take(t.Context(), store, hit); c.Err != nil {
			t.Errorf("a connection that was suspect was used: %v", c.Err)
		}
	})
	if stale := store.Stats().Stale; stale == 0 {
		t.Error("no connection was found stale")
	}
}

// A request whose answer is lost may have been counted. It is never sent again.
func TestNeverChargedTwice(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	cluster := servers.Cluster(t)
	for name, options := range map[string]redisstore.Options{
		"server": {Addr: server.Addr()},
		// The proxy stands before one node only, so that the client sees it when it looks for nodes and finds the others itself.
		"cluster": {Cluster: cluster.Addrs()[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "cluster" {
				// Cluster nodes name their own addresses: nothing can be put between, so the node is killed in the middle instead.
				node, _ := cluster.NodeOf("{lost}:3600")
				killedInTheMiddle(t, open(t, options), node)
				return
			}
			between := newProxy(t, options.Addr)
			options.Addr = between.addr()
			store := open(t, options)
			l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
			if c := take(t.Context(), store, one("first:3600", l)); c.Err != nil {
				t.Fatal(c.Err)
			}
			between.cut("lost:3600")
			const calls = 20
			for range calls {
				if err := take(t.Context(), store, one("lost:3600", l)).Err; !errors.Is(err, redisstore.ErrUnavailable) {
					t.Errorf("error %v, want ErrUnavailable", err)
				}
			}
			if n := between.deliveries(); n != calls {
				t.Errorf("%d requests were sent for %d calls", n, calls)
			}
			between.cut("")
			c := take(t.Context(), store, ratelimit.Hit{Key: "lost:3600", Limit: l})
			if used := l.Count - c.Results[0].Remaining; used != calls {
				t.Errorf("%d hits were charged by %d calls", used, calls)
			}
		})
	}
}

// killedInTheMiddle pauses a node while callers wait for it, and kills it.
func killedInTheMiddle(t *testing.T, store *redisstore.Store, node *servers.RedisServer) {
	t.Helper()
	l := limit(t, ratelimit.FixedWindow, 1_000_000, time.Hour)
	if c := take(t.Context(), store, one("lost:3600", l)); c.Err != nil {
		t.Fatal(c.Err)
	}
	node.Pause()
	var group sync.WaitGroup
	var callers, failed atomic.Int64
	servers.Eventually(t, "callers wait for the node", func() bool {
		callers.Add(1)
		group.Go(func() {
			if errors.Is(take(t.Context(), store, one("lost:3600", l)).Err, redisstore.ErrUnavailable) {
				failed.Add(1)
			}
		})
		return store.Stats().Open >= 3
	})
	node.Kill()
	group.Wait()
	if failed.Load() != callers.Load() {
		t.Errorf("%d of %d callers of a killed node were told so", failed.Load(), callers.Load())
	}
}

func TestReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := servers.Redis(t)
	replica := servers.Redis(t, servers.WithConfig(fmt.Sprintf("replicaof 127.0.0.1 %d", primary.Port())))
	store := open(t, redisstore.Options{Addr: replica.Addr()})
	l := limit(t, ratelimit.SlidingLog, 10, time.Hour)
	servers.Eventually(t, "the replica has its primary", func() bool {
		info, err := replica.Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	for _, algorithm := range ratelimit.Algorithms() {
		l = limit(t, algorithm, 10, time.Hour)
		err := take(t.Context(), store, one("replica:3600", l)).Err
		if !errors.Is(err, redisstore.ErrUnavailable) || !strings.Contains(err.Error(), "replica") {
			t.Errorf("%v: error %v, want one that says what a replica is", algorithm, err)
		}
	}
	// A replica that becomes the primary is used, without an error on connections from before.
	replica.Do("replicaof", "no", "one")
	for range 10 {
		if c := take(t.Context(), store, one("replica:3600", l)); c.Err != nil {
			t.Error(c.Err)
		}
	}
}

func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	group := servers.Sentinel(t)
	store := open(t, redisstore.Options{Sentinel: group.Addrs(), MasterName: group.Master(), Timeout: time.Second})
	l := limit(t, ratelimit.TokenBucket, 1_000_000, time.Hour)
	hit := one("failover:3600", l)
	crowd(20, func(int) {
		if c := take(t.Context(), store, hit); c.Err != nil {
			t.Error(c.Err)
		}
	})
	group.Failover()
	recovered(t, store, hit, 10*time.Second)
	for range 50 {
		if c := take(t.Context(), store, hit); c.Err != nil {
			t.Errorf("after a planned failover: %v", c.Err)
		}
	}
	old := group.Primary()
	servers.Eventually(t, "the old primary follows the new one", func() bool {
		info, err := group.Replica().Client().Info(t.Context(), "replication").Result()
		return err == nil && strings.Contains(info, "master_link_status:up")
	})
	old.Kill()
	if err := punctual(t, store, hit); err == nil {
		t.Error("no error although the primary is dead and not replaced yet")
	}
	group.AwaitFailover(old)
	recovered(t, store, hit, 10*time.Second)
	if c := take(t.Context(), store, ratelimit.Hit{Key: hit.Key, Limit: l}); c.Err != nil || c.Results[0].Remaining == l.Count {
		t.Errorf("the new primary knows nothing of the old one's counters: %+v", c)
	}
}

// What Redis answers is told in the words of the one who has to act.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"-LOADING Redis is loading the dataset in memory":                                   "still loading",
		"-NOAUTH Authentication required.":                                                  "set one",
		"-WRONGPASS invalid username-password pair or user is disabled.":                    "password is wrong",
		"-NOPERM this user has no permissions to run the 'evalsha' command":                 "lacks a permission",
		"-OOM command not allowed when used memory > 'maxmemory'.":                          "maxmemory",
		"-READONLY You can't write against a read only replica.":                            "is a replica",
		"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.": "lost its primary",
		"-CLUSTERDOWN The cluster is down":                                                  "cluster is down",
		"-TRYAGAIN Multiple keys request during rehashing of slot":                          "being moved",
		"-MISCONF Redis is configured to save RDB snapshots":                                "save to disk",
		"-NOREPLICAS Not enough good replicas to write.":                                    "too few replicas",
		"-BUSY Redis is busy running a script.":                                             "slow script",
		"-ERR max number of clients reached":                                                "maxclients",
		"-ERR something else":                                                               "something else",
		"*0":                                                                                "unexpected reply",
		"*5\r\n:1\r\n:1\r\n:9\r\n:0\r\n:-1":                                                 "unexpected reply",
		"*5\r\n:7\r\n:1\r\n:9\r\n:0\r\n:0":                                                  "unexpected reply",
		"*1\r\n:1":                                                                          "unexpected reply",
		"+OK":                                                                               "did not decide",
		"garbage":                                                                           "did not decide",
		"*999999999999999999999\r\n":                                                        "did not decide",
	} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel()
			store := open(t, redisstore.Options{Addr: scripted(t, func() string { return answer + "\r\n" })})
			l := limit(t, ratelimit.FixedWindow, 10, time.Hour)
			err := take(t.Context(), store, one("answer:3600", l)).Err
			if !errors.Is(err, redisstore.ErrUnavailable) || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want ErrUnavailable that says %q", err, want)
			}
		})
	}
}

func TestServerOutOfMemory(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store := open(t, redisstore.Options{Addr: server.Addr()})
	l := limit(t, ratelimit.TokenBucket, 10, time.Hour)
	take(t.Context(), store, one("memory:3600", l))
	server.Do("config", "set", "maxmemory", "1", "maxmemory-policy", "noeviction")
	err := take(t.Context(), store, one("memory:3600", l)).Err
	if !errors.Is(err, redisstore.ErrUnavailable) || !strings.Contains(err.Error(), "memory is full") {
		t.Errorf("error %v, want one that says that memory is full", err)
	}
	server.Do("config", "set", "maxmemory", "0")
	c := take(t.Context(), store, one("memory:3600", l))
	if c.Err != nil || c.Results[0].Remaining != 8 {
		t.Errorf("%+v, %v: want 8 left, for what failed was not charged", c.Results[0], c.Err)
	}
}

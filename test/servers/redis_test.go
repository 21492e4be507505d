package servers_test

import (
	"testing"

	"github.com/weirhq/weir/test/servers"
)

func TestRedisKeepsWhatWasSaved(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	server.Do("set", "kept", "1")
	server.Save()
	server.Do("set", "lost", "1")
	pid := server.Process().PID()
	server.Restart()
	if server.Process().PID() == pid {
		t.Fatal("the server was not restarted")
	}
	if n := server.Do("exists", "kept"); n != int64(1) {
		t.Errorf("the saved key is gone")
	}
	if n := server.Do("exists", "lost"); n != int64(0) {
		t.Errorf("a key that was not saved is still there")
	}
}

func TestRedisPauses(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	server.Pause()
	server.Resume()
	if reply := server.Do("ping"); reply != "PONG" {
		t.Errorf("ping after a pause: %v", reply)
	}
}

func TestRedisTLSAndPassword(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t, servers.WithTLS(), servers.WithUnixSocket(), servers.WithPassword("secret"))
	if server.TLSConfig() == nil || server.Socket() == "" {
		t.Fatal("no TLS configuration or socket")
	}
	if reply := server.Do("ping"); reply != "PONG" {
		t.Errorf("ping over TLS: %v", reply)
	}
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	group := servers.Sentinel(t)
	first, second := group.Primary(), group.Replica()
	group.Failover()
	if group.Primary() != second || group.Replica() != first {
		t.Error("primary and replica have not changed places")
	}
}

func TestClusterMovesSlots(t *testing.T) {
	t.Parallel()
	cluster := servers.Cluster(t)
	from, slot := cluster.NodeOf("key")
	from.Do("set", "key", "1")
	to := cluster.Nodes()[0]
	if to == from {
		to = cluster.Nodes()[1]
	}
	cluster.BeginMove(slot, from, to)
	cluster.FinishMove(slot, from, to)
	if now, _ := cluster.NodeOf("key"); now != to {
		t.Fatalf("the slot is held by %s, want %s", now.Addr(), to.Addr())
	}
	if value := to.Do("get", "key"); value != "1" {
		t.Errorf("the key was not moved: %v", value)
	}
}

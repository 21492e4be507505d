package servers

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	redisHint  = "run `make test-setup`, or `apt-get install redis-server`"
	bindTries  = 5
	addrInUse  = "Address already in use"
	bindFailed = "Failed listening on port"
)

// RedisServer is a redis-server without persistence that lives as long as its test.
type RedisServer struct {
	t       testing.TB
	name    string
	dir     string
	port    int
	busPort int      // of a cluster's nodes among themselves; 0: no cluster
	config  []string // lines of redis.conf besides those that every server has
	args    []string // of redis-server, after the configuration file
	process *Process

	username, password string
	socket             string
	tls                *Authority
	client             *redis.Client // for the test's own commands
}

// RedisOption changes how a RedisServer is set up.
type RedisOption func(*RedisServer)

// WithPassword makes the server ask for a password.
func WithPassword(password string) RedisOption {
	return func(s *RedisServer) {
		s.password = password
		s.config = append(s.config, "requirepass "+password)
	}
}

// WithUser adds an ACL user that may do what rules allow, for example "~* +@all", and turns the default user off.
func WithUser(name, password, rules string) RedisOption {
	return func(s *RedisServer) {
		s.username, s.password = name, password
		s.config = append(s.config, "user default off", fmt.Sprintf("user %s on >%s &* %s", name, password, rules))
	}
}

// WithTLS makes the server speak TLS only, with a certificate of its own authority: see TLSConfig.
func WithTLS() RedisOption {
	return func(s *RedisServer) { s.tls = NewAuthority(s.t, s.dir) }
}

// WithUnixSocket makes the server listen on a unix socket too: see Socket.
func WithUnixSocket() RedisOption {
	return func(s *RedisServer) {
		s.socket = filepath.Join(shortDir(s.t), "redis.sock")
		s.config = append(s.config, "unixsocket "+s.socket)
	}
}

// WithConfig adds lines to the server's configuration file.
func WithConfig(lines ...string) RedisOption {
	return func(s *RedisServer) { s.config = append(s.config, lines...) }
}

// Redis starts a redis-server and returns once it answers.
func Redis(t testing.TB, options ...RedisOption) *RedisServer {
	t.Helper()
	s := newRedis(t, "redis-server", options...)
	s.start()
	return s
}

func newRedis(t testing.TB, name string, options ...RedisOption) *RedisServer {
	t.Helper()
	s := &RedisServer{t: t, name: name, dir: t.TempDir()}
	for _, option := range options {
		option(s)
	}
	return s
}

// start runs the server on a port that it may choose: the one of an earlier start is kept.
func (s *RedisServer) start() {
	s.t.Helper()
	keepPort := s.port != 0
	for range bindTries {
		if !keepPort {
			s.port = FreePort(s.t)
			if s.busPort != 0 {
				s.busPort = FreePort(s.t)
			}
		}
		if s.run() {
			return
		}
	}
	s.t.Fatalf("%s found no port in %d tries; its output:\n%s", s.name, bindTries, s.process.Log())
}

// run starts the process and waits until it answers. It reports false if the port was taken.
func (s *RedisServer) run() bool {
	s.t.Helper()
	path := Find(s.t, "redis-server", redisHint)
	config := writeFile(s.t, s.dir, "redis.conf", []byte(strings.Join(s.configuration(), "\n")+"\n"))
	s.process = Start(s.t, fmt.Sprintf("%s on port %d", s.name, s.port), path, append([]string{config}, s.args...)...)
	s.connect()
	answers := s.process.Await(s.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
		defer cancel()
		return s.client.Do(ctx, "ping").Err() == nil
	})
	if answers {
		return true
	}
	if log := s.process.Log(); !strings.Contains(log, addrInUse) && !strings.Contains(log, bindFailed) {
		s.t.Fatalf("%s ended while starting (%v); its output:\n%s", s.name, s.process.Err(), log)
	}
	return false
}

func (s *RedisServer) configuration() []string {
	lines := []string{
		"bind 127.0.0.1", "dir " + s.dir, "dbfilename dump.rdb", `save ""`, "appendonly no", "daemonize no",
		"databases 16", "protected-mode no", "repl-diskless-sync-delay 0", "enable-debug-command local",
	}
	if s.tls != nil {
		lines = append(lines, "port 0", fmt.Sprintf("tls-port %d", s.port), "tls-auth-clients no",
			"tls-cert-file "+s.tls.CertFile, "tls-key-file "+s.tls.KeyFile, "tls-ca-cert-file "+s.tls.CAFile)
	} else {
		lines = append(lines, fmt.Sprintf("port %d", s.port))
	}
	if s.busPort != 0 {
		lines = append(lines, "cluster-enabled yes", "cluster-config-file nodes.conf", fmt.Sprintf("cluster-port %d", s.busPort))
	}
	return slices.Concat(lines, s.config)
}

// connect opens the client for the test's own commands, on the port that the server has now.
func (s *RedisServer) connect() {
	if s.client != nil {
		_ = s.client.Close() // of a server that is gone
	}
	s.client = redis.NewClient(&redis.Options{
		Addr: s.Addr(), Username: s.username, Password: s.password, TLSConfig: s.TLSConfig(), DisableIdentity: true,
	})
	client := s.client
	s.t.Cleanup(func() { _ = client.Close() })
}

// Addr is the server's host:port.
func (s *RedisServer) Addr() string { return Address(s.port) }

// Port is the server's TCP port.
func (s *RedisServer) Port() int { return s.port }

// Socket is the path of the server's unix socket, or empty without WithUnixSocket.
func (s *RedisServer) Socket() string { return s.socket }

// TLSConfig trusts the server's authority. nil without WithTLS.
func (s *RedisServer) TLSConfig() *tls.Config {
	if s.tls == nil {
		return nil
	}
	return s.tls.Client()
}

// CAFile is the PEM file of the server's authority, with WithTLS.
func (s *RedisServer) CAFile() string { return s.tls.CAFile }

// Client talks to the server for the test's own needs. It is opened anew by Restart.
func (s *RedisServer) Client() *redis.Client { return s.client }

// Process is the server's process; Restart starts another one.
func (s *RedisServer) Process() *Process { return s.process }

// Pause stops the server without ending it (SIGSTOP): connections stay open and nothing is answered.
func (s *RedisServer) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
}

// Resume lets a paused server go on.
func (s *RedisServer) Resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *RedisServer) signal(signal syscall.Signal) {
	s.t.Helper()
	if !s.process.Signal(signal) {
		s.t.Fatalf("%s has ended: %v", s.name, s.process.Err())
	}
}

// Kill ends the server at once. Restart brings it back.
func (s *RedisServer) Kill() { s.process.Kill() }

// Save writes the data to disk, where Restart finds it.
func (s *RedisServer) Save() {
	s.t.Helper()
	s.Do("save")
}

// Restart ends the server if it runs, and starts it on the same port with the data of the last Save, and with no scripts.
func (s *RedisServer) Restart() {
	s.t.Helper()
	s.process.Kill()
	s.start()
}

// FlushScripts makes the server forget all scripts.
func (s *RedisServer) FlushScripts() {
	s.t.Helper()
	s.Do("script", "flush", "sync")
}

// Do runs a command and returns its reply; an error fails the test.
func (s *RedisServer) Do(args ...any) any {
	s.t.Helper()
	reply, err := s.client.Do(context.Background(), args...).Result()
	if err != nil {
		s.t.Fatalf("%s: %v: %v", s.name, args, err)
	}
	return reply
}

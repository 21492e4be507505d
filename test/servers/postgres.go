package servers

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	postgresHint = "run `make test-setup`, or `apt-get install postgresql`"
	// PostgresUser is the superuser of every PostgresServer.
	PostgresUser = "weir"
	// PostgresPassword is PostgresUser's password. Special characters in it show who forgets to escape.
	PostgresPassword = `it's a "pass\word" %41&=?`
)

// PostgresServer is a PostgreSQL server with its own data that lives as long as its test. It asks for a password on TCP.
// Data written survives Kill; the disk is not waited for, so it need not survive the machine.
type PostgresServer struct {
	t         testing.TB
	bin       string // the folder of initdb and postgres
	dir       string
	port      int
	user      *syscall.SysProcAttr
	process   *Process
	databases atomic.Int64
}

// PostgresDatabase is an empty database on a PostgresServer.
type PostgresDatabase struct {
	server *PostgresServer
	Name   string
}

// Postgres starts a PostgreSQL server, which takes about a second, and returns once it answers. Tests that do not end or
// pause it can share one as subtests, each with its own Database.
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	s := &PostgresServer{t: t, bin: postgresBin(t), dir: shortDir(t), user: dieWithParent()}
	if s.user == nil {
		s.user = new(syscall.SysProcAttr)
	}
	s.user.Credential = unprivileged(t)
	if c := s.user.Credential; c != nil {
		if err := os.Chown(s.dir, int(c.Uid), int(c.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	s.initialize()
	s.start()
	return s
}

// postgresBin finds the newest installed server. Debian keeps servers off the PATH.
func postgresBin(t testing.TB) string {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		t.Fatalf("the PostgreSQL server is not installed: %s", postgresHint)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // no number: the oldest
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) }))
}

// unprivileged returns the user that the server runs as: it refuses to run as root. nil: the user of the test.
func unprivileged(t testing.TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		account, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(account.Gid, 10, 32)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	t.Fatal("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody: run the tests as another user")
	return nil
}

// initialize makes the data folder.
func (s *PostgresServer) initialize() {
	s.t.Helper()
	password := writeFile(s.t, s.dir, "password", []byte(PostgresPassword))
	if c := s.user.Credential; c != nil {
		if err := os.Chown(password, int(c.Uid), int(c.Gid)); err != nil {
			s.t.Fatal(err)
		}
	}
	initdb := startWith(s.t, s.user, "initdb", filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--no-sync", "--no-locale",
		"--encoding", "UTF8", "--username", PostgresUser, "--pwfile", password, "--auth-local", "trust", "--auth-host", "scram-sha-256")
	if err := initdb.Err(); err != nil {
		s.t.Fatalf("initdb: %v; its output:\n%s", err, initdb.Log())
	}
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// start runs the server on a port that it may choose: the one of an earlier start is kept.
func (s *PostgresServer) start() {
	s.t.Helper()
	keepPort := s.port != 0
	for range bindTries {
		if !keepPort {
			s.port = FreePort(s.t)
		}
		if s.run() {
			return
		}
	}
	s.t.Fatalf("postgres did not start in %d tries; its output:\n%s", bindTries, s.process.Log())
}

// run starts the process and waits until it answers. It reports false if the port was taken, or if what a killed server
// left behind is still in use.
func (s *PostgresServer) run() bool {
	s.t.Helper()
	s.process = startWith(s.t, s.user, fmt.Sprintf("postgres on port %d", s.port), filepath.Join(s.bin, "postgres"),
		"-D", s.data(), "-F", // no fsync
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(s.port), "-c", "unix_socket_directories="+s.dir,
		"-c", "max_connections=200", "-c", "log_min_messages=warning", "-c", "jit=off")
	started := s.process
	s.t.Cleanup(func() {
		if started.Running() {
			s.Kill()
		}
	})
	answers := s.process.Await(s.t, func() bool {
		conn, err := s.connect("postgres")
		if err != nil {
			return false
		}
		return conn.Close(s.t.Context()) == nil
	})
	if answers {
		return true
	}
	log := s.process.Log()
	if strings.Contains(log, "in use") { // the address, or the shared memory
		time.Sleep(100 * time.Millisecond)
		return false
	}
	s.t.Fatalf("postgres ended while starting (%v); its output:\n%s", s.process.Err(), log)
	return false
}

// connect uses the unix socket, which no client of the product uses and which asks for no password.
func (s *PostgresServer) connect(database string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), StartTimeout)
	defer cancel()
	return pgx.Connect(ctx, fmt.Sprintf("host=%s port=%d user=%s dbname=%s", s.dir, s.port, PostgresUser, database))
}

// Port is the server's TCP port on 127.0.0.1.
func (s *PostgresServer) Port() int { return s.port }

// SocketDir is the folder of the server's unix socket, on which it asks for no password.
func (s *PostgresServer) SocketDir() string { return s.dir }

// Process is the server's process; Restart starts another one.
func (s *PostgresServer) Process() *Process { return s.process }

// Pause stops the server and the processes that serve its connections without ending them (SIGSTOP): connections stay
// open, new ones are taken by the system, and nothing is answered. Linux only.
func (s *PostgresServer) Pause() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP) // first the parent, so that it starts no more children
	Eventually(s.t, "postgres has stopped", func() bool { return stateOf(s.process.PID()) == 'T' })
	for _, pid := range s.children() {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // one that has ended needs no stopping
	}
}

// Resume lets a paused server go on.
func (s *PostgresServer) Resume() {
	s.t.Helper()
	for _, pid := range s.children() {
		_ = syscall.Kill(pid, syscall.SIGCONT) // one that has ended cannot go on
	}
	s.signal(syscall.SIGCONT)
}

// Kill ends the server and the processes that serve its connections at once. Restart brings it back.
func (s *PostgresServer) Kill() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	children := s.children()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // one that has ended is what is wanted
	}
	s.process.Kill()
	// Until they have let go of the data, it can neither be served again nor removed.
	Eventually(s.t, "the processes of a killed postgres have ended", func() bool { return !slices.ContainsFunc(children, runs) })
}

// runs tells whether a process is there and more than an entry that nobody has asked for yet.
func runs(pid int) bool {
	state := stateOf(pid)
	return state != 0 && state != 'Z' && state != 'X'
}

// stateOf is the letter that the system has for what a process does (T: stopped, Z: ended), 0 if there is none.
func stateOf(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may hold any character.
	_, state, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
	if state == "" {
		return 0
	}
	return state[0]
}

// Restart ends the server if it runs, and starts it on the same port with the same data.
func (s *PostgresServer) Restart() {
	s.t.Helper()
	if s.process.Running() {
		s.signal(syscall.SIGINT) // "fast": connections are ended
		<-s.process.Done()
	}
	s.start()
}

func (s *PostgresServer) signal(signal syscall.Signal) {
	s.t.Helper()
	if !s.process.Signal(signal) {
		s.t.Fatalf("postgres on port %d has ended: %v", s.port, s.process.Err())
	}
}

// children returns the processes that the server has started.
func (s *PostgresServer) children() (pids []int) {
	s.t.Helper()
	pid := s.process.PID()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		s.t.Fatalf("find the processes of postgres: %v", err)
	}
	for field := range strings.FieldsSeq(string(list)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			s.t.Fatalf("find the processes of postgres: %v", err)
		}
		pids = append(pids, child)
	}
	return pids
}

// Database makes an empty database.
func (s *PostgresServer) Database(t testing.TB) *PostgresDatabase {
	t.Helper()
	d := &PostgresDatabase{server: s, Name: fmt.Sprintf("test %d's", s.databases.Add(1))}
	conn, err := s.connect("postgres")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{d.Name}.Sanitize()); err != nil {
		t.Fatalf("create database %q: %v", d.Name, err)
	}
	return d
}

// Host is the server's address.
func (*PostgresDatabase) Host() string { return "127.0.0.1" }

// Port is the server's TCP port.
func (d *PostgresDatabase) Port() int { return d.server.port }

// URL is the database's address with user and password, for whoever takes a connection string.
func (d *PostgresDatabase) URL() string {
	address := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(PostgresUser, PostgresPassword),
		Host:     Address(d.server.port),
		Path:     "/" + d.Name,
		RawQuery: "sslmode=disable",
	}
	return address.String()
}

// Exec runs statements for the test's own needs; an error fails the test.
func (d *PostgresDatabase) Exec(t testing.TB, statements string, args ...any) {
	t.Helper()
	conn, err := d.server.connect(pgValue(d.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statements, args...); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// pgValue quotes a value of a keyword=value connection string.
func pgValue(value string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(value) + "'"
}

// Hold runs statements in a transaction that stays open, with the locks that it has, until release is called or the test
// ends.
func (d *PostgresDatabase) Hold(t testing.TB, statements string) (release func()) {
	t.Helper()
	conn, err := d.server.connect(pgValue(d.Name))
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // the server rolls back
	t.Cleanup(release)
	if _, err := conn.Exec(t.Context(), "BEGIN; "+statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
	return release
}

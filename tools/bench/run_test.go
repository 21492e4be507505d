package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/test/servers"
)

// quick measures next to nothing, of everything that is installed but the peer. A busy machine may miss any deadline meanwhile.
func quick(t *testing.T) settings {
	t.Helper()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	readme := filepath.Join(dir, "readme.md")
	for _, path := range []string{page, readme} {
		if err := os.WriteFile(path, []byte(begin+end), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return settings{
		weir: servers.WeirBinary(t), redis: "redis-server", peer: filepath.Join(dir, "nothing"), envoy: servers.FindEnvoy(t),
		page: page, readme: readme, json: filepath.Join(dir, "new", "all.json"),
		rounds: 1, warmup: 10 * time.Millisecond, duration: 200 * time.Millisecond, keys: 50, faults: 1,
	}
}

// One whole run with real servers: every scene has its table, and no server is left.
func TestRun(t *testing.T) {
	s := quick(t)
	stdout, stderr := discard(t), discard(t)
	if err := run(t.Context(), s, stdout, stderr); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(s.page)
	if err != nil {
		t.Fatal(err)
	}
	if readme, err := os.ReadFile(s.readme); err != nil || !strings.Contains(string(readme), "| "+string(grpcRedis)+" |") || strings.Contains(string(readme), "###") {
		t.Errorf("the README's summary is %s (%v)", readme, err)
	}
	text, err := os.ReadFile(s.json)
	if err != nil {
		t.Fatal(err)
	}
	var all results
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	scenes, err := plan(s)
	if err != nil {
		t.Fatal(err)
	}
	inRedis := []contestant{weirRedis, weirLease, grpcRedis, grpcLease, weirInPlace}
	if len(all.Scenes) != len(scenes) {
		t.Errorf("%d of %d scenes were measured", len(all.Scenes), len(scenes))
	}
	var asked, answered int
	for i, scene := range all.Scenes {
		if !strings.Contains(string(page), "### "+scene.Title+"\n") {
			t.Errorf("the page has no %q:\n%s", scene.Title, page)
		}
		for j, target := range scene.Report.Targets {
			if contestant(target.Name) != scenes[i].contestants[j] {
				t.Errorf("%s: %s was measured for %s", scene.Title, target.Name, scenes[i].contestants[j])
			}
			m := target.Median
			asked++
			if m.Calls == 0 && len(m.Faults) > 0 {
				continue // on a busy machine a server may miss all deadlines of so short a turn
			}
			answered++
			if m.Calls == 0 || m.CPUTotal <= 0 {
				t.Errorf("%s: %s had %d calls at %v us", scene.Title, target.Name, m.Calls, m.CPUTotal)
			}
			if _, has := target.Median.CPU["redis"]; has != slices.Contains(inRedis, contestant(target.Name)) {
				t.Errorf("%s: of %s Redis is measured: %v", scene.Title, target.Name, has)
			}
		}
	}
	if 2*answered < asked {
		t.Errorf("%d of %d servers answered", answered, asked)
	}
	if a := all.About; a.Go == "" || a.Grpc == "" || a.Weir == "" || a.Redis == "" || a.Machine == "" || a.Peer != "" {
		t.Errorf("about %+v", a)
	}
}

// An interrupted run ends its servers and writes nothing.
func TestRunInterrupted(t *testing.T) {
	s := quick(t)
	s.duration = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	f := &field{dir: t.TempDir(), settings: s}
	target, err := f.target(ctx, weirRedis)
	if err != nil {
		t.Fatal(err)
	}
	again, err := f.target(ctx, weirRedis)
	if err != nil || again.Address != target.Address {
		t.Errorf("it was started twice: %v %v", again, err)
	}
	other, err := f.target(ctx, grpcRedis)
	if err != nil || other.Address == target.Address || !slices.Equal(other.Processes, target.Processes) {
		t.Errorf("the other listener is not one of the same server: %v beside %v (%v)", other, target, err)
	}
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writes.Close()
	go func() {
		defer reads.Close()
		if line, _ := bufio.NewReader(reads).ReadString('\n'); strings.HasPrefix(line, "==> 1 of ") {
			time.AfterFunc(200*time.Millisecond, cancel) // among the servers' starts or in a measurement: it must not matter
		}
	}()
	if err := run(ctx, s, discard(t), writes); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	f.close()
	for _, process := range target.Processes {
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(process.PID))); err == nil {
			t.Errorf("%s runs on", process.Name)
		}
	}
	if page, err := os.ReadFile(s.page); err != nil || string(page) != begin+end {
		t.Errorf("it wrote %s (%v)", page, err)
	}
}

func TestPlan(t *testing.T) {
	s := quick(t)
	if _, err := plan(settings{only: "nothing"}); err == nil || !strings.Contains(err.Error(), saturatedUniform) {
		t.Errorf("error %v, want one that names the scenes", err)
	}
	s.only = light2000
	scenes, err := plan(s)
	if err != nil || len(scenes) != 1 || scenes[0].options.Rate != 2000 {
		t.Errorf("%+v (%v)", scenes, err)
	}
	s.only, s.peer = "", os.Args[0] // a file
	scenes, err = plan(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, scene := range scenes {
		if find := without(scene.contestants, peer); len(find) != len(scene.contestants)-1 {
			t.Errorf("%s goes without the peer", scene.title)
		}
		if scene.contestants[0] != echo {
			t.Errorf("%s goes without echo", scene.title)
		}
		for _, c := range []contestant{weirMemory, weirRedis, grpcRedis} {
			if !slices.Contains(scene.contestants, c) {
				t.Errorf("%s goes without %s", scene.title, c)
			}
		}
		if slices.Contains(scene.contestants, weirLease) != slices.Contains(scene.contestants, grpcLease) {
			t.Errorf("%s has a lease on one listener alone", scene.title)
		}
	}
}

func TestServersThatDoNotStart(t *testing.T) {
	for name, change := range map[string]func(*settings){
		"weir":  func(s *settings) { s.weir = "false" },
		"redis": func(s *settings) { s.redis = "false" },
	} {
		s := quick(t)
		change(&s)
		if err := run(t.Context(), s, discard(t), discard(t)); err == nil {
			t.Errorf("without %s it ran", name)
		}
	}
	p, err := start("a server", t.TempDir(), nil, "sh", "-c", "echo no; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	if err := p.await(t.Context(), func() bool { return false }); err == nil || !strings.Contains(err.Error(), "a server ended while starting; its last output:\nno\n") {
		t.Errorf("error %v", err)
	}
}

func discard(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

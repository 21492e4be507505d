package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/bench"
)

// flat is a target all of whose rounds are alike.
func flat(name contestant, cpu float64) *bench.TargetReport {
	round := &bench.Round{
		CPU: map[string]float64{"server": cpu}, CPUTotal: cpu, CallsPerSecond: 1000,
		Latency: bench.Times{P50: 100, P99: 2500, P999: 5000},
	}
	if strings.Contains(string(name), "Redis") {
		round.CPU["redis"] = cpu / 4
	}
	return &bench.TargetReport{Name: string(name), Rounds: []*bench.Round{round, round}, Median: round}
}

func sample(targets ...*bench.TargetReport) results {
	return results{
		About: about{Date: "2026-01-02", Machine: "2 x Processor", Load: "0.1", Weir: "v1", Grpc: "v1.85.0", Redis: "7.0.15"},
		Scenes: []sceneResult{{
			Name: saturatedUniform, Title: "Uniform, saturated",
			Report: &bench.Report{Load: bench.Load{Workload: bench.Uniform, Keys: 10, Callers: 64, Connections: 4, Rounds: 2}, Targets: targets},
		}},
	}
}

func TestTables(t *testing.T) {
	r := sample(flat(echo, 20), flat(weirRedis, 24), flat(grpcRedis, 30), flat(peer, 80))
	proxied := sample(flat(echo, 50), flat(weirRedis, 25), flat(weirInPlace, 30), flat(peer, 100)).Scenes[0]
	proxied.Name, proxied.Title = viaEnvoy, "Uniform, behind a real Envoy"
	r.Scenes = append(r.Scenes, proxied)
	text := tables(r)
	for _, want := range []string{
		"Measured 2026-01-02 on 2 x Processor (load average before: 0.1). weir v1, grpc-go v1.85.0, Redis 7.0.15; envoyproxy/ratelimit was not installed",
		"| uniform, us (x echo) | saturated | 10,000/s | 2,000/s | one caller | behind Envoy |\n",
		"| echo | 20.0 (1.00) | - | - | - | 50.0 (1.00) |\n",
		"| weir, Redis | 24.0 (1.20) | - | - | - | 25.0 (0.50) |\n",
		"| weir grpc-go, Redis | 30.0 (1.50) | - | - | - | - |\n",
		"| ratelimit | 80.0 (4.00) | - | - | - | 100.0 (2.00) |\n",
		"### Uniform, saturated\n\nuniform, 10 keys; 64 callers on 4 connections;",
		"| weir, Redis | 24.0 | 6.0 | 1.20 (1.20-1.20) | 0.30 (0.30-0.30) | 1000 | 100 us | 2.5 ms | 5.0 ms | 1.00 |\n",
		"| ratelimit | 80.0 | - | 4.00 (4.00-4.00) | - |",
		"| weir as ratelimit | 30.0 | - | 0.60 (0.60-0.60) | 0.30 (0.30-0.30) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, string(weirMemory)) {
		t.Errorf("what was not measured has a row:\n%s", text)
	}
	columns := 0
	for line := range strings.Lines(text) {
		if n := strings.Count(line, "|"); strings.HasPrefix(line, "|") {
			if columns > 0 && n != columns {
				t.Errorf("a row of %d columns after one of %d: %s", n, columns, line)
			}
			columns = n
		} else {
			columns = 0
		}
	}
}

func TestWritePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	const page = "before\n" + begin + "old\n" + end + "\nafter\n"
	if err := os.WriteFile(path, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	r := sample(flat(echo, 20), flat(weirMemory, 10))
	var first string
	for range 2 { // writing it again changes nothing
		if err := writePage(path, tables(r)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first != "" && string(text) != first {
			t.Errorf("the second time it wrote\n%s\ninstead of\n%s", text, first)
		}
		first = string(text)
	}
	if !strings.HasPrefix(first, "before\n"+begin+"\nMeasured") || !strings.HasSuffix(first, "|\n\n"+end+"\nafter\n") || strings.Contains(first, "old") {
		t.Errorf("wrote\n%s", first)
	}
	for _, page := range []string{"", begin, end, end + "\n" + begin} {
		if _, err := replace([]byte(page), "figures"); err == nil {
			t.Errorf("a page without marks is written: %q", page)
		}
	}
}

// The page in the repository has the marks, and the commands that it names exist.
func TestShippedPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := replace(page, "figures"); err != nil {
		t.Error(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`make (bench[a-z-]*)`).FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(makefile), "\n"+match[1]+":") {
			t.Errorf("the page names the target %s, which is not there", match[1])
		}
	}
}

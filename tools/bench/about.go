package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// about is what the figures depend on besides the code.
type about struct {
	Date    string `json:"date"`
	Machine string `json:"machine"`
	Go      string `json:"go"`
	Weir    string `json:"weir"`
	Grpc    string `json:"grpc_go"`
	Redis   string `json:"redis"`
	Peer    string `json:"envoyproxy_ratelimit,omitempty"` // empty: not installed
	Load    string `json:"load_average"`                   // of others, as the run begins
}

func describe(ctx context.Context, s settings) (about, error) {
	a := about{Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(), Load: loadAverage()}
	version, err := exec.CommandContext(ctx, s.weir, "version").Output()
	if err != nil {
		return about{}, fmt.Errorf("%s version: %w: run make build", s.weir, err)
	}
	a.Weir = strings.TrimPrefix(strings.TrimSpace(string(version)), "weir ")
	build, err := buildinfo.ReadFile(s.weir)
	if err != nil {
		return about{}, err
	}
	a.Go = build.GoVersion
	for _, module := range build.Deps {
		if module.Path == "google.golang.org/grpc" {
			a.Grpc = module.Version
		}
	}
	redis, err := exec.CommandContext(ctx, s.redis, "--version").Output()
	if err != nil {
		return about{}, fmt.Errorf("%s --version: %w: run make test-setup", s.redis, err)
	}
	a.Redis = first(`v=(\S+)`, string(redis))
	if s.hasPeer() {
		build, err := buildinfo.ReadFile(s.peer)
		if err != nil {
			return about{}, err
		}
		a.Peer = build.Main.Version
	}
	return a, nil
}

func machine() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	model := "unknown processor"
	if err == nil {
		if name := first(`(?m)^model name\s*: (.+)$`, string(info)); name != "" {
			model = name
		}
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		kernel = nil
	}
	release := first(`^(\d+\.\d+)`, string(kernel))
	return strings.TrimSpace(fmt.Sprintf("%d x %s, %s %s", runtime.NumCPU(), model, runtime.GOOS, release))
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return first(`^(\S+)`, string(text))
}

func first(pattern, text string) string {
	if match := regexp.MustCompile(pattern).FindStringSubmatch(text); match != nil {
		return match[1]
	}
	return ""
}

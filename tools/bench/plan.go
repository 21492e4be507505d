package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/weirhq/weir/pkg/bench"
)

// contestant is a server in one of the set-ups that are measured.
type contestant string

// The contestants, under the names that the tables show.
const (
	echo          contestant = "echo"
	weirMemory    contestant = "weir, memory" // weir by itself is what Envoy is to ask, at server.fast_port
	weirRedis     contestant = "weir, Redis"
	weirLease     contestant = "weir, Redis, lease"
	grpcMemory    contestant = "weir grpc-go, memory" // the same weir, asked at server.grpc_port
	grpcRedis     contestant = "weir grpc-go, Redis"
	grpcLease     contestant = "weir grpc-go, Redis, lease"
	weirInPlace   contestant = "weir as ratelimit" // by envoyproxy/ratelimit's environment, in its keys
	peer          contestant = "ratelimit"
	peerCache     contestant = "ratelimit, local cache"
	peerCollector contestant = "ratelimit, GOGC=400"
)

// scene is one table: contestants that take turns under one load.
type scene struct {
	name        string
	title       string
	contestants []contestant
	options     bench.Options
}

// The scenes that the page's summary names.
const (
	saturatedUniform = "saturated-uniform"
	light10000       = "light-10000"
	light2000        = "light-2000"
	oneCaller        = "one-caller"
	viaEnvoy         = "via-envoy"
)

// plan is what is measured. Where the peer is not installed, it is left out.
func plan(s settings) ([]scene, error) {
	keyed := func(kind bench.Kind) bench.Workload {
		w := bench.Workload{Kind: kind}
		if kind == bench.Uniform || kind == bench.Three {
			w.Keys = s.keys
		}
		return w
	}
	saturated := func(kind bench.Kind) bench.Options {
		return bench.Options{
			Workload: keyed(kind), Callers: 64, Connections: 4,
			Warmup: s.warmup, Duration: s.duration, Rounds: s.rounds, Seed: 1,
		}
	}
	light := func(rate float64) bench.Options {
		o := saturated(bench.Uniform)
		o.Rate, o.Duration = rate, 2*s.duration
		return o
	}
	one := saturated(bench.Uniform)
	one.Callers, one.Connections, one.Duration = 1, 1, 2*s.duration

	proxied := bench.Options{ // one worker, 32 connections, 10,000 keys
		Workload: bench.Workload{Kind: bench.Uniform}, Envoy: &bench.Envoy{Path: s.envoy},
		Warmup: s.warmup, Duration: 2 * s.duration, Rounds: s.rounds, Seed: 1,
	}

	usual := []contestant{echo, weirMemory, weirRedis, grpcMemory, grpcRedis, peer}
	and := func(more ...contestant) []contestant { return slices.Concat(usual, more) }
	leases := []contestant{echo, weirMemory, weirRedis, weirLease, grpcMemory, grpcRedis, grpcLease, peer}
	proxies := []contestant{echo, weirMemory, weirRedis, grpcRedis, weirInPlace, peer}
	scenes := []scene{
		{saturatedUniform, "Uniform, saturated", and(peerCollector), saturated(bench.Uniform)},
		{"saturated-three", "Three descriptors, saturated", usual, saturated(bench.Three)},
		{"saturated-hot", "Hot key, saturated", leases, saturated(bench.Hot)},
		{"saturated-over", "Over the limit, saturated", and(peerCache), saturated(bench.Over)},
		{light10000, "Uniform, 10,000 calls a second", usual, light(10_000)},
		{light2000, "Uniform, 2,000 calls a second", usual, light(2000)},
		{oneCaller, "Uniform, one caller", usual, one},
		{viaEnvoy, "Uniform, behind a real Envoy", proxies, proxied},
	}
	installed := s.hasPeer()
	var chosen []scene
	for _, scene := range scenes {
		if s.only != "" && s.only != scene.name {
			continue
		}
		if !installed {
			scene.contestants = without(scene.contestants, peer, peerCache, peerCollector)
		}
		chosen = append(chosen, scene)
	}
	if len(chosen) == 0 {
		var names []string
		for _, scene := range scenes {
			names = append(names, scene.name)
		}
		return nil, fmt.Errorf("no scene is called %q: write one of %v", s.only, names)
	}
	return chosen, nil
}

func (s settings) hasPeer() bool {
	info, err := os.Stat(s.peer)
	return err == nil && info.Mode().IsRegular()
}

func without(all []contestant, some ...contestant) []contestant {
	return slices.DeleteFunc(slices.Clone(all), func(c contestant) bool { return slices.Contains(some, c) })
}

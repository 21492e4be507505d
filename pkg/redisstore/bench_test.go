package redisstore_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/redisstore"
	"github.com/weirhq/weir/test/servers"
)

// BenchmarkTake measures calls over 100,000 keys with Redis's clock. redis-us/hit and client-us/hit are the CPU time that each
// hit costs there and here.
func BenchmarkTake(b *testing.B) {
	server := servers.Redis(b)
	store := open(b, redisstore.Options{Addr: server.Addr(), Timeout: 2 * time.Hour})
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("ratelimit:user:user-%06d:60", i)
	}
	for _, algorithm := range ratelimit.Algorithms() {
		l := limit(b, algorithm, 100, time.Minute)
		for _, hits := range []int{1, 3, 64, 256} {
			b.Run(fmt.Sprintf("%v/charges=%d", algorithm, hits), func(b *testing.B) {
				server.Do("flushall")
				charges := make([]ratelimit.Charge, hits)
				for i := range charges {
					charges[i] = ratelimit.Charge{Hits: make([]ratelimit.Hit, 1), Results: make([]ratelimit.Result, 1)}
				}
				ctx, cancel := context.WithTimeout(b.Context(), time.Hour) // as the guard in front of a store sets one
				defer cancel()
				next := 0
				b.ReportAllocs()
				before, own := redisCPU(b, server), ownCPU(b)
				for b.Loop() {
					for i := range charges {
						charges[i].Hits[0] = one(keys[next%len(keys)], l)
						next += 7919
					}
					store.Take(ctx, charges)
				}
				b.ReportMetric((redisCPU(b, server)-before)*1e6/float64(b.N*hits), "redis-us/hit")
				b.ReportMetric((ownCPU(b)-own)*1e6/float64(b.N*hits), "client-us/hit")
				if charges[0].Err != nil {
					b.Error(charges[0].Err)
				}
			})
		}
	}
}

// BenchmarkTakeParallel measures calls of one charge from many goroutines.
func BenchmarkTakeParallel(b *testing.B) {
	server := servers.Redis(b)
	store := open(b, redisstore.Options{Addr: server.Addr()})
	l := limit(b, ratelimit.TokenBucket, 100, time.Minute)
	b.SetParallelism(16)
	b.ReportAllocs()
	var caller atomic.Int64
	before, own := redisCPU(b, server), ownCPU(b)
	b.RunParallel(func(pb *testing.PB) {
		key := fmt.Sprintf("ratelimit:user:user-%06d:60", caller.Add(1))
		charges := []ratelimit.Charge{{Hits: []ratelimit.Hit{one(key, l)}, Results: make([]ratelimit.Result, 1)}}
		for pb.Next() {
			store.Take(b.Context(), charges)
			if charges[0].Err != nil {
				b.Error(charges[0].Err)
			}
		}
	})
	b.ReportMetric((redisCPU(b, server)-before)*1e6/float64(b.N), "redis-us/hit")
	b.ReportMetric((ownCPU(b)-own)*1e6/float64(b.N), "client-us/hit")
}

// redisCPU returns the CPU time that the server has used, in seconds.
func redisCPU(b *testing.B, server *servers.RedisServer) (seconds float64) {
	b.Helper()
	info, err := server.Client().Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return seconds
}

// ownCPU returns the CPU time that this process has used, in seconds.
func ownCPU(b *testing.B) float64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

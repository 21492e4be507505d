package sharedkeys

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/test/servers"
)

const rules = `
domain: shared
descriptors:
  - key: minute
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: hour
    rate_limit: {unit: hour, requests_per_unit: 7}
    descriptors:
      - key: day
        rate_limit: {unit: day, requests_per_unit: 5}
  - key: path
    value: /a/*
    share_threshold: true
    rate_limit: {unit: hour, requests_per_unit: 9}
  - key: free
    rate_limit: {unlimited: true}
  - key: odd_key
    value: "ünï_code_"
    rate_limit: {unit: week, requests_per_unit: 3}
`

const (
	prefix = "swap:"
	jitter = 40
)

// both starts a replica of each kind on one Redis.
func both(t *testing.T, redis *servers.RedisServer, env ...string) [2]*replica {
	t.Helper()
	env = append(env, "REDIS_URL="+redis.Addr(), "CACHE_KEY_PREFIX="+prefix, "EXPIRATION_JITTER_MAX_SECONDS="+strconv.Itoa(jitter))
	return [2]*replica{start(t, "envoyproxy/ratelimit", reference(t), rules, env...), start(t, "weir", candidate(t), rules, env...)}
}

func request(cost uint32, descriptors ...[]string) *rlsv3.RateLimitRequest {
	r := &rlsv3.RateLimitRequest{Domain: "shared", HitsAddend: cost}
	for _, pairs := range descriptors {
		d := &common.RateLimitDescriptor{}
		for i := 0; i < len(pairs); i += 2 {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

var values = []string{"", "_", "a_b", "ü", "日本", "with space", "a:b|c=d{e}%41", "x*y", strings.Repeat("long", 100)}

// generate makes a request of values that are hard to spell.
func generate(random *rand.Rand) *rlsv3.RateLimitRequest {
	value := func() string { return values[random.IntN(len(values))] }
	var descriptors [][]string
	for range 1 + random.IntN(3) {
		descriptors = append(descriptors, [][]string{
			{"minute", value()},
			{"hour", value()},
			{"hour", value(), "day", value()},
			{"path", "/a/" + value()},
			{"free", value()},
			{"odd_key", "ünï_code_"},
			{"odd_key", value()},
			{"unknown", value()},
		}[random.IntN(8)])
	}
	return request(uint32(random.IntN(4)), descriptors...)
}

// counters are the keys of a Redis and their values, and those that do not live as long as they should.
func counters(t *testing.T, redis *servers.RedisServer) (found map[string]string, problems []string) {
	t.Helper()
	found = make(map[string]string)
	for _, key := range redis.Client().Keys(t.Context(), "*").Val() {
		value, err := redis.Client().Get(t.Context(), key).Result()
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		ttl := redis.Client().TTL(t.Context(), key).Val()
		if window := windowOf(key); ttl <= 0 || ttl > window+jitter*time.Second || ttl < window-answerTimeout {
			problems = append(problems, fmt.Sprintf("%q lives for %v, its window is %v and the jitter %d s", key, ttl, window, jitter))
		}
		found[key] = value
	}
	return found, problems
}

func windowOf(key string) time.Duration {
	const day = 24 * time.Hour
	switch name := strings.TrimPrefix(key, prefix+"shared_"); {
	case strings.HasPrefix(name, "minute_"):
		return time.Minute
	case strings.HasPrefix(name, "hour_") && strings.Contains(name, "_day_"):
		return day
	case strings.HasPrefix(name, "odd_key_"):
		return 7 * day
	default:
		return time.Hour
	}
}

// within runs a case, again if a minute ended meanwhile, and with it perhaps a longer window. What is wrong, and is not the
// end's fault, fails the test.
func within(t *testing.T, run func() (problems []string)) {
	t.Helper()
	for range 10 {
		minute := time.Now().Unix() / 60
		problems := run()
		if time.Now().Unix()/60 != minute {
			continue
		}
		for _, problem := range problems {
			t.Error(problem)
		}
		return
	}
	t.Fatal("a window ended in each of ten runs")
}

// The same requests leave the same keys and values, whoever has decided them: one, the other, or both in turn.
func TestSameKeys(t *testing.T) {
	apart := [2]*servers.RedisServer{servers.Redis(t), servers.Redis(t)}
	old, weir := both(t, apart[0])[0], both(t, apart[1])[1]
	together := servers.Redis(t)
	turns := both(t, together)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for range 4 {
		within(t, func() (problems []string) {
			for _, redis := range append(apart[:], together) {
				redis.Do("FLUSHALL")
			}
			for i := range 60 {
				r := generate(random)
				answers := []*rlsv3.RateLimitResponse{old.ask(t, r), weir.ask(t, r), turns[i%2].ask(t, r)}
				for _, answer := range answers[1:] {
					if a, b := brief(answers[0]), brief(answer); a != b {
						problems = append(problems, fmt.Sprintf("%s: %s and %s", protojson.Format(r), a, b))
					}
				}
			}
			want, wrong := counters(t, apart[0])
			problems = append(problems, wrong...)
			if len(want) < 10 {
				problems = append(problems, fmt.Sprintf("only %d keys", len(want)))
			}
			for name, redis := range map[string]*servers.RedisServer{"weir": apart[1], "both in turn": together} {
				got, wrong := counters(t, redis)
				problems = append(problems, wrong...)
				if list(got) != list(want) {
					problems = append(problems, fmt.Sprintf("%s:\n%s\nwant\n%s", name, list(got), list(want)))
				}
			}
			return problems
		})
	}
}

func brief(response *rlsv3.RateLimitResponse) string {
	var b strings.Builder
	fmt.Fprint(&b, response.GetOverallCode())
	for _, status := range response.GetStatuses() {
		fmt.Fprintf(&b, " %v:%d", status.GetCode(), status.GetLimitRemaining())
	}
	return b.String()
}

func list(counters map[string]string) string {
	var lines []string
	for key, value := range counters {
		lines = append(lines, fmt.Sprintf("%q = %s", key, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// 50 callers of each kind at the same time get no more than the limit, and exactly that.
func TestNeverAboveTheLimit(t *testing.T) {
	for name, env := range map[string][]string{"plain": nil, "local cache": {"LOCAL_CACHE_SIZE_IN_BYTES=1000000"}} {
		t.Run(name, func(t *testing.T) {
			redis := servers.Redis(t)
			replicas := both(t, redis, env...)
			random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same each time
			for round := range 5 {
				within(t, func() []string {
					redis.Do("FLUSHALL")
					r := request(1, []string{"minute", fmt.Sprint(round, random.Int64())}) // the local cache still knows the last one
					var allowed [2]atomic.Int64
					var group sync.WaitGroup
					for caller := range 100 {
						group.Go(func() {
							for range 5 {
								if replicas[caller%2].ask(t, r).GetOverallCode() == rlsv3.RateLimitResponse_OK {
									allowed[caller%2].Add(1)
								}
							}
						})
					}
					group.Wait()
					a, b := allowed[0].Load(), allowed[1].Load()
					if a+b != 60 {
						return []string{fmt.Sprintf("%d by envoyproxy/ratelimit and %d by weir: %d of 60", a, b, a+b)}
					}
					t.Logf("figure: %d by envoyproxy/ratelimit and %d by weir of 60", a, b)
					return nil
				})
			}
		})
	}
}

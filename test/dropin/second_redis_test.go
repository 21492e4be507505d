package dropin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// Windows of a second are counted in the Redis that is theirs, under the same keys.
func TestSecondRedis(t *testing.T) {
	slow, fast := servers.Redis(t), servers.Redis(t)
	text := "domain: edge\ndescriptors:\n  - {key: second, rate_limit: {unit: second, requests_per_unit: 1000}}\n  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1000}}\n"
	s := start(t, "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+slow.Addr(), "REDIS_PERSECOND=true", "REDIS_PERSECOND_SOCKET_TYPE=tcp", "REDIS_PERSECOND_URL="+fast.Addr(),
		"RUNTIME_ROOT="+runtime(t, text), "RUNTIME_SUBDIRECTORY=ratelimit", "USE_STATSD=false")
	connection := dial(t, s.grpc)
	for _, descriptor := range []string{"second=a", "hour=a"} {
		if !allowed(t, connection, "edge", descriptor) {
			t.Errorf("%s is denied", descriptor)
		}
	}
	for _, c := range []struct {
		redis *servers.RedisServer
		here  string
	}{{slow, "edge_hour_a_"}, {fast, "edge_second_a_"}} {
		keys := fmt.Sprint(c.redis.Do("keys", "edge_*"))
		if !strings.Contains(keys, c.here) || strings.Count(keys, "edge_") != 1 {
			t.Errorf("the keys are %s, want one that begins with %s", keys, c.here)
		}
	}
}

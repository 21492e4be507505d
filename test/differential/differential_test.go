package differential

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirhq/weir/test/servers"
)

// reference is the path of envoyproxy/ratelimit.
func reference(t testing.TB) string {
	t.Helper()
	return filepath.Join(servers.Root(t), "build", "peers", "ratelimit")
}

// candidate is weir under the name of the binary that it replaces.
func candidate(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(servers.WeirBinary(t), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// edges returns the numbers of the windows, of every unit, that a moment lies in.
func edges(now time.Time) (windows []int64) {
	const day = 86400
	for _, seconds := range []int64{1, 60, 3600, day, 7 * day, 30 * day, 365 * day} {
		windows = append(windows, now.Unix()/seconds)
	}
	return windows
}

// crossed reports whether a window that the scenario's rules or requests may have has ended between two moments.
func (s scenario) crossed(began, ended time.Time) bool {
	a, b := edges(began), edges(ended)
	lower := strings.ToLower(s.rules)
	if !strings.Contains(lower, "unit: second") {
		a[0], b[0] = 0, 0
	}
	if !strings.Contains(lower, "unit: minute") {
		a[1], b[1] = 0, 0
	}
	return !slices.Equal(a, b)
}

func TestSameAnswersAndCounts(t *testing.T) {
	const scenarios = 40
	for name, env := range map[string]map[string]string{
		"plain":       {},
		"local cache": {"LOCAL_CACHE_SIZE_IN_BYTES": "1000000", "CACHE_KEY_PREFIX": "swap:", "NEAR_LIMIT_RATIO": "0.5"},
		"shadow mode": {"SHADOW_MODE": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			env["WEIR_REDIS_TIMEOUT_MS"] = "20000" // the machine may be busy
			old := start(t, "envoyproxy/ratelimit", reference(t), env)
			weir := start(t, "weir", candidate(t), env)
			random := rand.New(rand.NewPCG(7, uint64(len(name)))) //nolint:gosec // the same each time
			asked, number := 0, 0
			var compared []scenario // whose counters can be compared
			for done := 0; done < scenarios; {
				number++
				if number > 4*scenarios {
					t.Fatalf("only %d of %d scenarios ended before their windows did", done, scenarios)
				}
				s := generate(random, number, name == "local cache")
				slices.Sort(s.listing)
				old.load(s.rules, s.listing)
				weir.load(s.rules, s.listing)
				if s.windowsOfASecond() {
					awaitNextSecond()
				}
				began := time.Now()
				answers := make([][2]answer, len(s.requests))
				for i, request := range s.requests {
					answers[i] = [2]answer{old.askAs(i, request), weir.askAs(i, request)}
				}
				if s.crossed(began, time.Now()) {
					continue
				}
				for i, request := range s.requests {
					if !same(name, request, answers[i][0], answers[i][1]) {
						t.Fatalf("request %d\n%s\nunder\n%s\nwas answered\n%s\nby weir\n%s",
							i, protojson.Format(request), s.rules, answers[i][0], answers[i][1])
					}
				}
				done++
				asked += len(s.requests)
				compared = append(compared, s)
			}
			servers.Eventually(t, "counters are sent", func() bool { return len(old.stats.of("ratelimit.service.rate_limit.")) > scenarios })
			awaitSameCounters(t, old, weir, compared)
			t.Logf("figure: %d requests under %d rule files: same answers and counts", asked, scenarios)
		})
	}
}

// askAs asks every fifth request at /json.
func (s *server) askAs(i int, request *rlsv3.RateLimitRequest) answer {
	if i%5 == 4 {
		return s.askJSON(request)
	}
	return s.ask(request)
}

func (s scenario) windowsOfASecond() bool { return strings.Contains(s.rules, "unit: second") }

// awaitNextSecond returns at the beginning of a second, so that what follows has all of it.
func awaitNextSecond() {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
}

// awaitSameCounters waits until both have sent what they counted.
func awaitSameCounters(t *testing.T, old, weir *server, scenarios []scenario) {
	t.Helper()
	var differences []string
	for deadline := time.Now().Add(servers.StartTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		differences = nil
		for _, s := range scenarios {
			prefix := "ratelimit.service.rate_limit." + s.domain
			if lines := differ(old.stats.of(prefix), weir.stats.of(prefix)); len(lines) > 0 {
				differences = append(differences, strings.Join(lines, "\n")+"\nunder\n"+s.rules)
			}
		}
		if len(differences) == 0 {
			return
		}
	}
	t.Errorf("counted:\n%s", strings.Join(differences, "\n"))
}

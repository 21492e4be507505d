package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// texts reads a serialized request by the generated types: "domain key=value key=value".
func texts(t testing.TB, message []byte) []string {
	t.Helper()
	var request rlsv3.RateLimitRequest
	if err := proto.Unmarshal(message, &request); err != nil {
		t.Fatalf("%x is no request: %v", message, err)
	}
	out := []string{request.GetDomain()}
	for _, descriptor := range request.GetDescriptors() {
		if len(descriptor.GetEntries()) != 1 {
			t.Fatalf("a descriptor has %d entries", len(descriptor.GetEntries()))
		}
		entry := descriptor.GetEntries()[0]
		out = append(out, entry.GetKey()+"="+entry.GetValue())
	}
	return out
}

func made(t testing.TB, w Workload) *requests {
	t.Helper()
	r, err := newRequests(w.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRequests(t *testing.T) {
	for _, c := range []struct {
		workload Workload
		want     string // %s is a value
		values   int
	}{
		{Workload{}, "bench uniform=%s", 1},
		{Workload{Kind: Hot}, "bench hot=00000000", 0},
		{Workload{Kind: Over, Keys: 3}, "bench over=%s", 1},
		{Workload{Kind: Over}, "bench over=00000000", 0},
		{Workload{Kind: Three}, "bench hot=00000000 uniform=%s uniform=%s", 2},
		{Workload{Kind: Three, Domain: "d", HotKey: "h", UniformKey: "u"}, "d h=00000000 u=%s u=%s", 2},
	} {
		t.Run(fmt.Sprint(c.workload), func(t *testing.T) {
			r := made(t, c.workload)
			source := random(1)
			for range 100 {
				message := r.draw(nil, source)
				got := texts(t, message)
				var values []any
				for _, descriptor := range got[len(got)-c.values:] {
					values = append(values, descriptor[strings.Index(descriptor, "=")+1:])
				}
				if want := fmt.Sprintf(c.want, values...); strings.Join(got, " ") != want {
					t.Fatalf("request %q, want %q", strings.Join(got, " "), want)
				}
				if len(message) != r.size() {
					t.Fatalf("a request of %d bytes, want %d", len(message), r.size())
				}
				if c.values == 2 && got[2] == got[3] {
					t.Fatalf("both uniform descriptors are %s", got[2])
				}
			}
		})
	}
}

// Each key is as likely as the other: of 10 keys drawn 10,000 times none is off by more than five standard deviations.
func TestUniformIsUniform(t *testing.T) {
	const keys, draws = 10, 10_000
	for _, kind := range []Kind{Uniform, Three} {
		r, source := made(t, Workload{Kind: kind, Keys: keys}), random(1)
		seen := map[string]int{}
		total := 0
		for range draws {
			for _, text := range texts(t, r.draw(nil, source)) {
				if strings.HasPrefix(text, "uniform=") {
					seen[text]++
					total++
				}
			}
		}
		if len(seen) != keys {
			t.Errorf("%s: %d different keys of %d", kind, len(seen), keys)
		}
		for key, n := range seen {
			if mean := total / keys; n < mean-180 || n > mean+180 {
				t.Errorf("%s: %s came %d times, the mean is %d", kind, key, n, mean)
			}
		}
	}
}

func TestSeedMakesTheLoad(t *testing.T) {
	r := made(t, Workload{})
	draw := func(seed uint64) (all []byte) {
		source := random(seed)
		for range 100 {
			all = r.draw(all, source)
		}
		return all
	}
	if !slices.Equal(draw(1), draw(1)) {
		t.Error("one seed makes two loads")
	}
	if slices.Equal(draw(1), draw(2)) {
		t.Error("two seeds make one load")
	}
}

// A walk by several lanes asks for every key exactly once, and leaves none to the other keys.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys, lanes := rapid.IntRange(1, 500).Draw(t, "keys"), rapid.IntRange(1, 20).Draw(t, "lanes")
		r, err := newRequests(Workload{Kind: Uniform, Keys: keys}.withDefaults())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for i := range lanes {
			w := newWalk(i, lanes, keys)
			for w.take() {
				seen[string(r.nth(nil, w.next(keys)))]++
			}
		}
		for key, n := range seen {
			if n != 1 {
				t.Fatalf("%x was asked for %d times", key, n)
			}
		}
		if len(seen) != keys {
			t.Fatalf("%d of %d keys were asked for", len(seen), keys)
		}
	})
}

func TestWorkloadsThatMakeNoSense(t *testing.T) {
	for _, c := range []struct {
		workload Workload
		want     string
	}{
		{Workload{Kind: "cold"}, `unknown workload "cold": write one of [uniform hot over three]`},
		{Workload{Keys: -1}, "-1 keys: write 1 to 100000000"},
		{Workload{Keys: MaxKeys + 1}, "100000001 keys: write 1 to 100000000"},
		{Workload{Kind: Three, Keys: 1}, "workload three needs 2 keys"},
		{Workload{Domain: strings.Repeat("d", 129)}, "the domain has 129 bytes"},
	} {
		if _, err := newRequests(c.workload.withDefaults()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q in it", c.workload, err, c.want)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	r, source := made(b, Workload{Kind: Three}), random(1)
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		buffer = r.draw(buffer[:0], source)
	}
}

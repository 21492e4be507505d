package engine

import (
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func key(l *Limiter, domain string, entries []ratelimit.Entry, levels []ratelimit.EntryMatch) string {
	limits := []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Minute}}
	return string(appendWindow(l.appendBase(nil, domain, entries, levels), limits, 0))
}

func entries(pairs ...string) []ratelimit.Entry {
	var list []ratelimit.Entry
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, ratelimit.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return list
}

func TestKeysAreSpelledAsDocumented(t *testing.T) {
	l := New(nil, Options{})
	shared := func(pattern string) []ratelimit.EntryMatch {
		return []ratelimit.EntryMatch{{Key: "user", Kind: ratelimit.MatchWildcard, Pattern: pattern, Shared: true}}
	}
	for _, c := range []struct {
		domain  string
		entries []ratelimit.Entry
		levels  []ratelimit.EntryMatch
		want    string
	}{
		{"k1s0", entries("user", "user-001"), nil, "ratelimit:user:user-001:60"},
		{"k1s0", entries("endpoint", "/api/v1/orders"), nil, "ratelimit:endpoint:/api/v1/orders:60"},
		{"k1s0", entries("user", "a=b"), nil, "ratelimit:user:a%3Db:60"},
		{"k1s0", entries("user", ""), nil, "ratelimit:user::60"},
		{"k1s0", entries("plan", "free", "user", "u1"), nil, "ratelimit:k1s0:plan=free|user=u1:60"},
		{"k1s0", nil, nil, "ratelimit:k1s0:%-:60"},
		{"edge", entries("user", "user-001"), nil, "ratelimit:edge:user=user-001:60"},
		{"default/eg/http", entries("k", "v"), nil, "ratelimit:default/eg/http:k=v:60"},
		{"edge", entries("k", "a:b|c=d%{e} \n\xff"), nil, "ratelimit:edge:k=a%3Ab%7Cc%3Dd%25%7Be%7D%20%0A%FF:60"},
		{"edge", entries("user", "abc"), shared("a*"), "ratelimit:edge:user=%*a*:60"},
		{"edge", entries("user", "a*"), nil, "ratelimit:edge:user=a*:60"},
		{"k1s0", entries("user", "abc"), shared("a*"), "ratelimit:user:%*a*:60"},
	} {
		if got := key(l, c.domain, c.entries, c.levels); got != c.want {
			t.Errorf("%q %q: key %q, want %q", c.domain, c.entries, got, c.want)
		}
	}
	if got := key(New(nil, Options{Prefix: "a:{b}"}), "edge", entries("k", "v"), nil); got != "a:%7Bb%7D:edge:k=v:60" {
		t.Errorf("prefix: key %q", got)
	}
}

func TestLongPartsBecomeHashes(t *testing.T) {
	l := New(nil, Options{})
	long := strings.Repeat("x", 128)
	if got := key(l, "edge", entries("k", long), nil); got != "ratelimit:edge:k="+long+":60" {
		t.Errorf("128 bytes are written out: got %q", got)
	}
	hashed := key(l, "edge", entries("k", long+"x"), nil)
	if _, err := hex.DecodeString(strings.TrimSuffix(strings.TrimPrefix(hashed, "ratelimit:edge:k=%~"), ":60")); err != nil || len(hashed) != len("ratelimit:edge:k=%~:60")+32 {
		t.Errorf("129 bytes become 128 bits in hexadecimal: got %q", hashed)
	}
	// A value may look like a hash and like a hashed path: neither is one.
	inner := strings.TrimSuffix(strings.TrimPrefix(hashed, "ratelimit:edge:k="), ":60")
	if got := key(l, "edge", entries("k", inner), nil); got == hashed {
		t.Error("a literal can be written as a hash")
	}
	var many []ratelimit.Entry
	for range 20 {
		many = append(many, ratelimit.Entry{Key: "k", Value: long})
	}
	// What the hash is made of, sent as a value: two hashes of the same bytes, told apart by their marks.
	path := strings.Repeat("|k="+long, len(many))[1:]
	if a, b := key(l, "path", many, nil), key(l, "k1s0", entries("path", path), nil); a == b || !strings.HasPrefix(a, "ratelimit:path:%#") {
		t.Errorf("a long path becomes a hash of its own kind: %q, %q", a, b)
	}
	many[19].Value = long[:127] + "y"
	other := key(l, "path", many, nil)
	many[19].Value = long
	if other == key(l, "path", many, nil) {
		t.Error("the end of a long path does not count")
	}
}

func TestWindowsOfOneRuleDiffer(t *testing.T) {
	limits := []ratelimit.Limit{
		{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Minute},
		{Algorithm: ratelimit.TokenBucket, Count: 2, Window: time.Minute},
		{Algorithm: ratelimit.FixedWindow, Count: 3, Window: 250 * time.Millisecond},
		{Algorithm: ratelimit.FixedWindow, Count: 4, Calendar: ratelimit.CalendarMonth},
		{Algorithm: ratelimit.FixedWindow, Count: 5, Window: 30 * 24 * time.Hour},
		{Algorithm: ratelimit.FixedWindow, Count: 6, Window: time.Minute},
		{Algorithm: ratelimit.FixedWindow, Count: 7, Calendar: ratelimit.CalendarYear},
		{Algorithm: ratelimit.FixedWindow, Count: 8, Calendar: ratelimit.CalendarMonth},
		{Algorithm: ratelimit.FixedWindow, Count: 9, Window: 1500 * time.Millisecond},
	}
	want := []string{":60", ":60/2", ":0.25", ":month", ":2592000", ":60/3", ":year", ":month/2", ":1.5"}
	for i := range limits {
		if err := limits[i].Check(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range limits {
		got := string(appendWindow(nil, limits, i))
		if got != want[i] {
			t.Errorf("limit %d: window %q, want %q", i, got, want[i])
		}
		if name, _, _ := strings.Cut(got[1:], "/"); name != limits[i].WindowName() {
			t.Errorf("limit %d: %q is not Limit.WindowName %q", i, name, limits[i].WindowName())
		}
	}
}

// parse reads a key without hashes back. That there is exactly one descriptor for each key is what keeps two from sharing one.
func parse(t interface{ Fatalf(string, ...any) }, key string) (domain string, list []ratelimit.Entry) {
	unescape := func(s string) string {
		var b []byte
		for i := 0; i < len(s); i++ {
			if s[i] != '%' {
				b = append(b, s[i])
				continue
			}
			c, err := hex.DecodeString(s[i+1 : i+3])
			if err != nil {
				t.Fatalf("key %q: %v", key, err)
			}
			b, i = append(b, c...), i+2
		}
		return string(b)
	}
	parts := strings.Split(key, ":")
	if len(parts) != 4 || parts[0] != "ratelimit" || parts[3] != "60" {
		t.Fatalf("key %q has not the four parts of a key", key)
	}
	switch {
	case parts[2] == "%-":
		return unescape(parts[1]), nil
	case !strings.Contains(parts[2], "="):
		return "k1s0", []ratelimit.Entry{{Key: unescape(parts[1]), Value: unescape(parts[2])}}
	}
	for pair := range strings.SplitSeq(parts[2], "|") {
		k, v, _ := strings.Cut(pair, "=")
		list = append(list, ratelimit.Entry{Key: unescape(k), Value: unescape(v)})
	}
	return unescape(parts[1]), list
}

// hostile draws strings from the bytes that have a meaning in keys.
func hostile(longest int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"", ":", "=", "|", "%", "%~", "%*", "%#", "%-", "{", "}", "/", "*", " ", "\n", "\x00", "\xff", "é", "a", "k1s0", "25", "60", "user",
		}), 0, longest).Draw(t, "parts"), "")
	})
}

func TestKeyIsInjective(t *testing.T) {
	l := New(nil, Options{})
	rapid.Check(t, func(t *rapid.T) {
		domain := rapid.OneOf(rapid.Just("k1s0"), hostile(3)).Filter(func(s string) bool { return s != "" }).Draw(t, "domain")
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ratelimit.Entry {
			return ratelimit.Entry{Key: hostile(3).Draw(t, "key"), Value: hostile(5).Draw(t, "value")}
		}), 0, 4).Draw(t, "entries")
		got := key(l, domain, list, nil)
		checkBytes(t, got)
		gotDomain, gotList := parse(t, got)
		if gotDomain != domain || !slices.Equal(gotList, list) && len(list)+len(gotList) > 0 {
			t.Fatalf("key %q of %q %q reads back as %q %q", got, domain, list, gotDomain, gotList)
		}
	})
}

func TestSharedLevelsNeverMeetLiterals(t *testing.T) {
	l := New(nil, Options{})
	rapid.Check(t, func(t *rapid.T) {
		pattern, value := hostile(40).Draw(t, "pattern"), hostile(40).Draw(t, "value")
		domain := rapid.SampledFrom([]string{"k1s0", "edge"}).Draw(t, "domain")
		levels := []ratelimit.EntryMatch{{Key: "k", Kind: ratelimit.MatchWildcard, Pattern: pattern, Shared: true}}
		shared := key(l, domain, entries("k", value), levels)
		if shared != key(l, domain, entries("k", "another"), levels) {
			t.Fatal("a shared level has a counter for each value")
		}
		for _, literal := range []string{value, pattern, "%*" + pattern, "*" + pattern} {
			if shared == key(l, domain, entries("k", literal), nil) {
				t.Fatalf("the pattern %q and the value %q share the key %q", pattern, literal, shared)
			}
		}
	})
}

func checkBytes(t interface{ Fatalf(string, ...any) }, key string) {
	if len(key) > 1024 {
		t.Fatalf("a key of %d bytes", len(key))
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			t.Fatalf("key %q holds the byte %#x", key, c)
		}
	}
}

func FuzzKey(f *testing.F) {
	f.Add("k1s0", "user", "user-001", "edge", "user", "user-001", 1, 1)
	f.Add("edge", "a", "b|c=d", "edge", "a", "b", 1, 2)
	f.Add("user", "k", "v", "k1s0", "user", "k=v", 1, 1)
	f.Add("user", "", "", "k1s0", "user", "", 0, 1)
	f.Add("e", "k", strings.Repeat("%", 400), "e", "k", strings.Repeat("%", 401), 90, 90)
	l := New(nil, Options{})
	f.Fuzz(func(t *testing.T, domainA, keyA, valueA, domainB, keyB, valueB string, nA, nB int) {
		a, b := repeated(keyA, valueA, nA), repeated(keyB, valueB, nB)
		x, y := key(l, domainA, a, nil), key(l, domainB, b, nil)
		checkBytes(t, x)
		checkBytes(t, y)
		if domainA == "" || domainB == "" {
			return // no such request is decided
		}
		if same := domainA == domainB && slices.Equal(a, b); same != (x == y) {
			t.Fatalf("%q %q has the key %q, %q %q has %q", domainA, a, x, domainB, b, y)
		}
	})
}

func repeated(key, value string, n int) []ratelimit.Entry {
	list := []ratelimit.Entry{}
	for range min(max(n, 0), 100) {
		list = append(list, ratelimit.Entry{Key: key, Value: value})
	}
	return list
}

func BenchmarkKey(b *testing.B) {
	l := New(nil, Options{})
	list := entries("remote_address", "203.0.113.77")
	limits := []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Minute}}
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendWindow(l.appendBase(buf[:0], "edge", list, nil), limits, 0)
	}
}

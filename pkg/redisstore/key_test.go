package redisstore

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// hashTag is the part of a key that decides its slot, by the rule of the Redis Cluster specification.
func hashTag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

func TestTaggedKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"ratelimit:user:u1:60":    "{ratelimit:user:u1}:60",
		"ratelimit:edge:a=b:60/2": "{ratelimit:edge:a=b}:60/2",
		"plain":                   "{plain}",
		"a:":                      "{a}:",
	} {
		if got := string(appendTagged(nil, key)); got != want {
			t.Errorf("%q is written as %q, want %q", key, got, want)
		}
	}
}

// Keys of one base go to one slot, with the key of the charge's ID, and different keys stay different.
func TestTaggedKeysStayTogether(t *testing.T) {
	t.Parallel()
	part := rapid.StringOf(rapid.SampledFrom([]rune{'a', 'b', '{', '}', ':', '%', 'é', 0}))
	rapid.Check(t, func(t *rapid.T) {
		base := part.Draw(t, "base")
		first := base + ":" + strings.ReplaceAll(part.Draw(t, "first"), ":", "")
		second := base + ":" + strings.ReplaceAll(part.Draw(t, "second"), ":", "")
		a, b := string(appendTagged(nil, first)), string(appendTagged(nil, second))
		if hashTag(a) != hashTag(b) {
			t.Errorf("%q and %q go to different slots: %q, %q", first, second, a, b)
		}
		if (first == second) != (a == b) {
			t.Errorf("%q and %q are written as %q and %q", first, second, a, b)
		}
		id := string(appendIDKey(nil, tag(a), "id"))
		if hashTag(id) != hashTag(a) || id == a {
			t.Errorf("the ID's key %q is not beside %q", id, a)
		}
	})
}

func TestMarksTellHitsApart(t *testing.T) {
	t.Parallel()
	l := new(ratelimit.Limit)
	marks := make(map[string]int)
	for i, hits := range [][]ratelimit.Hit{
		{{Key: "a", Limit: l, Cost: 1}},
		{{Key: "a", Limit: l, Cost: 2}},
		{{Key: "a", Limit: l, Cost: -1}},
		{{Key: "a", Limit: l, Cost: 1, Partial: true}},
		{{Key: "b", Limit: l, Cost: 1}},
		{{Key: "a", Limit: l, Cost: 1}, {Key: "b", Limit: l, Cost: 1}},
		{{Key: "b", Limit: l, Cost: 1}, {Key: "a", Limit: l, Cost: 1}},
		{{Key: "ab", Limit: l, Cost: 1}},
		{{Key: "", Limit: l, Cost: 1}, {Key: "ab", Limit: l, Cost: 1}},
		{{Key: "ab", Limit: l, Cost: 1}, {Key: "", Limit: l, Cost: 1}},
	} {
		mark := string(appendMark(nil, hits))
		if other, taken := marks[mark]; taken || len(mark) != markSize {
			t.Errorf("hits %d and %d have the mark %x", i, other, mark)
		}
		marks[mark] = i
	}
}

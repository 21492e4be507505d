package storetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestParse(t *testing.T) {
	cases, err := parse("f.txt", `
# a comment

case first thing
limit sliding_log 5/1m
limit b leaky_bucket 10/1s burst=3
1.5s 2 partial + -1 limit=b key=k id=x => denied 1 0 1ms 2h | allowed -1 3 0s 0s # why
2026-02-03T04:05:06Z 1 => conflict
2s reset k counter
case second
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) != 2 || cases[0].Name != "first thing" || len(cases[0].Steps) != 3 || len(cases[1].Steps) != 0 {
		t.Fatalf("%+v", cases)
	}
	steps := cases[0].Steps
	hits := steps[0].Charge.Hits
	if hits[0].Key != "f.txt/first thing:counter" || hits[0].Cost != 2 || !hits[0].Partial || hits[0].Limit.Algorithm != ratelimit.SlidingLog {
		t.Errorf("first hit: %+v", hits[0])
	}
	if hits[1].Key != "f.txt/first thing:k" || hits[1].Cost != -1 || hits[1].Partial || hits[1].Limit.Burst != 3 {
		t.Errorf("second hit: %+v", hits[1])
	}
	want := []ratelimit.Result{{Granted: 1, RetryAfter: time.Millisecond, ResetAfter: 2 * time.Hour}, {Allowed: true, Granted: -1, Remaining: 3}}
	if !slices.Equal(steps[0].Want, want) || steps[0].Charge.ID == "" || !steps[0].Now.Equal(start.Add(1500*time.Millisecond)) {
		t.Errorf("first step: %+v", steps[0])
	}
	if !errors.Is(steps[1].Err, ratelimit.ErrConflict) || !steps[1].Now.Equal(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)) {
		t.Errorf("second step: %+v", steps[1])
	}
	if !slices.Equal(steps[2].Reset, []string{"f.txt/first thing:k", "f.txt/first thing:counter"}) {
		t.Errorf("third step: %+v", steps[2])
	}
}

func TestParseFaults(t *testing.T) {
	const head = "case c\nlimit fixed_window 5/10s\n"
	for _, text := range []string{
		"0s 1 => allowed 1 1 0s 0s",
		"case c\n0s 1 => allowed 1 1 0s 0s",
		"case c\nlimit",
		"case c\nlimit fixed_window",
		"case c\nlimit five 5/10s",
		"case c\nlimit fixed_window x/10s",
		"case c\nlimit fixed_window 5/soon",
		"case c\nlimit fixed_window 5/10s burst=2",
		"case c\nlimit fixed_window 5/10s colour=red",
		"case c\nlimit fixed_window 5/month location=Nowhere",
		"case c\nlimit token_bucket 5/10s burst=x",
		head + "0s 1 + 1 key=b => allowed 1 1 0s 0s",
		head + "soon 1 => allowed 1 1 0s 0s",
		head + "0s 1",
		head + "0s => allowed 1 1 0s 0s",
		head + "0s x => allowed 1 1 0s 0s",
		head + "0s 1 limit=other => allowed 1 1 0s 0s",
		head + "0s 1 partially => allowed 1 1 0s 0s",
		head + "0s 1 => perhaps 1 1 0s 0s",
		head + "0s 1 => allowed 1 1 0s",
		head + "0s 1 => allowed x 1 0s 0s",
		head + "0s 1 => allowed 1 1 zero 0s",
	} {
		if _, err := parse("f.txt", text); err == nil || !strings.HasPrefix(err.Error(), "f.txt:") {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

// TestFiles: each algorithm has a file, no file belongs to nothing, and each says what must not be left out.
func TestFiles(t *testing.T) {
	names := []string{"charges"}
	for _, algorithm := range ratelimit.Algorithms() {
		names = append(names, algorithm.String())
		cases, err := Cases(algorithm.String())
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range []string{
			"giving back", "partial", "a clock that goes back", "a denied hit and a look leave no trace", "the limit changes",
			"zero denies everything", "zero on a counter that is used", "another algorithm", "reset",
		} {
			if !slices.ContainsFunc(cases, func(c Case) bool { return strings.HasPrefix(c.Name, name) && len(c.Steps) > 1 }) {
				t.Errorf("%v has no case %q", algorithm, name)
			}
		}
	}
	files, err := testdata.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := strings.TrimSuffix(file.Name(), ".txt"); !slices.Contains(names, name) {
			t.Errorf("%s is run by nothing", file.Name())
		}
	}
	if _, err := Cases("no_such_algorithm"); err == nil || !strings.Contains(err.Error(), "write pkg/storetest/testdata/no_such_algorithm.txt") {
		t.Errorf("a missing file: %v", err)
	}
}

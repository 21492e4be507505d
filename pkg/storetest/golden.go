package storetest

import (
	"bufio"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

//go:embed testdata/*.txt
var testdata embed.FS

// start is the time that durations in files of steps count from.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// Case is a sequence of steps on an empty store.
type Case struct {
	Name  string
	Steps []Step
}

// Step is one call of a store and what must come of it.
type Step struct {
	Line   string // "FILE:LINE: text", for messages
	Now    time.Time
	Charge ratelimit.Charge   // its Results have the right length
	Want   []ratelimit.Result // nil if Err is wanted
	Err    error
	Reset  []string // keys to reset instead of a charge; nil for a charge
}

// Cases returns the cases of testdata/NAME.txt, where NAME is an algorithm's, or "charges" for what concerns whole charges.
func Cases(name string) ([]Case, error) {
	file := path.Join("testdata", name+".txt")
	text, err := fs.ReadFile(testdata, file)
	if err != nil {
		return nil, fmt.Errorf("the steps of %s are missing: write pkg/storetest/%s: %w", name, file, err)
	}
	return parse(name+".txt", string(text))
}

// Golden runs the cases of the named files of steps, all of them if none is named, on stores that open makes. A store must
// take the time from now whenever it is called.
func Golden(t *testing.T, open func(t testing.TB, now func() time.Time) engine.Store, names ...string) {
	t.Helper()
	if len(names) == 0 {
		for _, algorithm := range ratelimit.Algorithms() {
			names = append(names, algorithm.String())
		}
		names = append(names, "charges")
	}
	for _, name := range names {
		cases, err := Cases(name)
		if err != nil {
			t.Error(err)
		}
		for _, c := range cases {
			t.Run(name+"/"+c.Name, func(t *testing.T) {
				clock := NewClock(start)
				store := open(t, clock.Now)
				for i := range c.Steps {
					c.Steps[i].run(t, store, clock)
				}
			})
		}
	}
}

func (s *Step) run(t *testing.T, store engine.Store, clock *Clock) {
	t.Helper()
	clock.Set(s.Now)
	if s.Reset != nil {
		if err := store.Reset(t.Context(), s.Reset); err != nil {
			t.Errorf("%s: %v", s.Line, err)
		}
		return
	}
	charges := []ratelimit.Charge{s.Charge}
	store.Take(t.Context(), charges)
	got := &charges[0]
	switch {
	case !errors.Is(got.Err, s.Err):
		t.Errorf("%s\n error %v, want %v", s.Line, got.Err, s.Err)
	case s.Err == nil && !slices.Equal(got.Results, s.Want):
		t.Errorf("%s\n got %s\nwant %s", s.Line, format(got.Results), format(s.Want))
	}
}

func format(results []ratelimit.Result) string {
	var b strings.Builder
	for i, r := range results {
		if i > 0 {
			b.WriteString(" | ")
		}
		verdict := "denied"
		if r.Allowed {
			verdict = "allowed"
		}
		fmt.Fprintf(&b, "%s %d %d %v %v", verdict, r.Granted, r.Remaining, r.RetryAfter, r.ResetAfter)
	}
	return b.String()
}

// parse reads a file of steps, whose format the package comment describes.
func parse(file, text string) ([]Case, error) {
	var cases []Case
	var limits map[string]*ratelimit.Limit
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		var err error
		switch {
		case words[0] == "case":
			cases = append(cases, Case{Name: strings.Join(words[1:], " ")})
			limits = make(map[string]*ratelimit.Limit)
		case len(cases) == 0:
			err = errors.New("before the first case")
		case words[0] == "limit":
			err = parseLimit(limits, words[1:])
		default:
			c := &cases[len(cases)-1]
			var step Step
			step, err = parseStep(limits, file+"/"+c.Name, strings.Join(words, " "))
			step.Line = fmt.Sprintf("%s:%d: %s", file, n, strings.Join(words, " "))
			c.Steps = append(c.Steps, step)
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %q: %w", file, n, lines.Text(), err)
		}
	}
	return cases, lines.Err()
}

func parseLimit(limits map[string]*ratelimit.Limit, words []string) error {
	var name string
	if len(words) > 0 {
		if _, err := ratelimit.ParseAlgorithm(words[0]); err != nil {
			name, words = words[0], words[1:]
		}
	}
	if len(words) < 2 {
		return errors.New("a limit has an algorithm and COUNT/WINDOW")
	}
	algorithm, err := ratelimit.ParseAlgorithm(words[0])
	if err != nil {
		return err
	}
	limit := &ratelimit.Limit{Algorithm: algorithm}
	count, window, _ := strings.Cut(words[1], "/")
	if limit.Count, err = strconv.ParseInt(count, 10, 64); err != nil {
		return err
	}
	switch window {
	case "month":
		limit.Calendar = ratelimit.CalendarMonth
	case "year":
		limit.Calendar = ratelimit.CalendarYear
	default:
		if limit.Window, err = time.ParseDuration(window); err != nil {
			return err
		}
	}
	for _, word := range words[2:] {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "burst":
			limit.Burst, err = strconv.ParseInt(value, 10, 64)
		case "location":
			limit.Location, err = time.LoadLocation(value)
		default:
			err = fmt.Errorf("unknown option %q", option)
		}
		if err != nil {
			return err
		}
	}
	limits[name] = limit
	return limit.Check()
}

func parseStep(limits map[string]*ratelimit.Limit, keys, line string) (step Step, err error) {
	at, rest, _ := strings.Cut(line, " ")
	if since, err := time.ParseDuration(at); err == nil {
		step.Now = start.Add(since)
	} else if step.Now, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return step, fmt.Errorf("%q is no time", at)
	}
	// What all keys of a case have in common stands before the last ':', as it does in the keys of one rule's limits.
	key := func(name string) string { return keys + ":" + name }
	if names, ok := strings.CutPrefix(rest+" ", "reset "); ok {
		step.Reset = []string{}
		for name := range strings.FieldsSeq(names) {
			step.Reset = append(step.Reset, key(name))
		}
		return step, nil
	}
	hits, results, found := strings.Cut(rest, "=>")
	if !found {
		return step, errors.New("no => and what must come of it")
	}
	for text := range strings.SplitSeq(hits, " + ") {
		hit, err := parseHit(limits, key, &step.Charge, strings.Fields(text))
		if err != nil {
			return step, err
		}
		step.Charge.Hits = append(step.Charge.Hits, hit)
	}
	step.Charge.Results = make([]ratelimit.Result, len(step.Charge.Hits))
	if strings.TrimSpace(results) == "conflict" {
		step.Err = ratelimit.ErrConflict
		return step, nil
	}
	for text := range strings.SplitSeq(results, "|") {
		result, err := parseResult(strings.Fields(text))
		if err != nil {
			return step, err
		}
		step.Want = append(step.Want, result)
	}
	if len(step.Want) != len(step.Charge.Hits) {
		return step, fmt.Errorf("%d results for %d hits", len(step.Want), len(step.Charge.Hits))
	}
	return step, nil
}

func parseHit(limits map[string]*ratelimit.Limit, key func(string) string, charge *ratelimit.Charge, words []string) (hit ratelimit.Hit, err error) {
	if len(words) == 0 {
		return hit, errors.New("an empty hit")
	}
	if hit.Cost, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return hit, err
	}
	var limit, counter string
	for _, word := range words[1:] {
		option, value, _ := strings.Cut(word, "=")
		switch option {
		case "limit":
			limit = value
		case "key":
			counter = value
		case "partial":
			hit.Partial = true
		case "id":
			charge.ID = key("id:" + value)
		default:
			return hit, fmt.Errorf("unknown option %q", option)
		}
	}
	if counter == "" {
		counter = limit
	}
	if counter == "" {
		counter = "counter"
	}
	hit.Key = key(counter)
	if hit.Limit = limits[limit]; hit.Limit == nil {
		return hit, fmt.Errorf("no limit is named %q", limit)
	}
	return hit, nil
}

func parseResult(words []string) (result ratelimit.Result, err error) {
	if len(words) != 5 || words[0] != "allowed" && words[0] != "denied" {
		return result, errors.New("a result is allowed|denied GRANTED REMAINING RETRY RESET")
	}
	result.Allowed = words[0] == "allowed"
	var errs [4]error
	result.Granted, errs[0] = strconv.ParseInt(words[1], 10, 64)
	result.Remaining, errs[1] = strconv.ParseInt(words[2], 10, 64)
	result.RetryAfter, errs[2] = time.ParseDuration(words[3])
	result.ResetAfter, errs[3] = time.ParseDuration(words[4])
	return result, errors.Join(errs[:]...)
}

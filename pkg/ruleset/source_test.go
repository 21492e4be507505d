package ruleset

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/rules"
)

// told is a source that says what its test puts.
type told struct{ slot *Slot }

func (*told) Name() string                             { return XDSSource }
func (s *told) Load(_ context.Context, slot *Slot)     { s.slot = slot }
func (*told) Run(context.Context, *Slot)               {}
func (s *told) put(t *testing.T, text, version string) { s.putOf(t, compiled(t, text), version) }

func (s *told) putOf(t *testing.T, table *rules.Table, version string) {
	t.Helper()
	if err := s.slot.Put(table, version); err != nil {
		t.Fatal(err)
	}
}

func compiled(t *testing.T, text string) *rules.Table {
	t.Helper()
	source, problems := rules.Parse("xds:test", []byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	table, err := rules.Compile(rules.Options{}, source)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

const (
	fileOne     = "rules: [{scope: user, identifier: bob, limit: 1, window: 1m}]"
	planeTwo    = "domain: k1s0\ndescriptors: [{key: user, value: bob, limits: [{limit: 2, window: 1m}]}, {key: user, value: ann, limits: [{limit: 2, window: 1m}]}]"
	planeOthers = "domain: k1s0\ndescriptors: [{key: user, value: ann, limits: [{limit: 3, window: 1m}]}]"
)

// newFollowed is a fixture with a control plane between its files and its store.
func newFollowed(t *testing.T, text string) (*fixture, *told) {
	t.Helper()
	f := newFixture(t, text)
	plane := &told{}
	stored := f.set.slots[len(f.set.slots)-1]
	f.set.slots = f.set.slots[:len(f.set.slots)-1]
	f.set.Add(plane, "rules of the control plane")
	f.set.slots = append(f.set.slots, stored)
	return f, plane
}

func TestSourcesYieldToThoseBeforeThem(t *testing.T) {
	f, plane := newFollowed(t, fileOne)
	f.create("ann", 9)
	f.create("eve", 9)
	f.set.Load(t.Context())
	f.expect("ann", 9)
	plane.put(t, planeTwo, "7")
	f.expect("bob", 1) // the file's
	f.expect("ann", 2) // the control plane's
	f.expect("eve", 9) // the store's

	states := f.set.Sources()
	if len(states) != 3 || states[0].Source != FilesSource || states[0].Version == "" || states[0].Rules != 1 || states[0].Problem != "" {
		t.Errorf("the files are told as %+v", states)
	}
	if s := states[1]; s.Source != XDSSource || s.Version != "7" || s.Rules != 2 || !strings.Contains(s.Problem, "1 rules of the control plane are not in force, because rule files have") {
		t.Errorf("the control plane is told as %+v", s)
	}
	if s := states[2]; s.Source != StoreSource || s.Rules != 2 || !strings.Contains(s.Problem, "because rule files or source xds have") {
		t.Errorf("the store is told as %+v", s)
	}

	plane.put(t, planeOthers, "8")
	if s := f.set.Sources()[1]; s.Version != "8" || s.Problem != "" {
		t.Errorf("after the conflict is gone the control plane is told as %+v", s)
	}
	f.expect("ann", 3)
	plane.slot.Refuse(errors.New("no good"))
	f.expect("ann", 3)
	if s := f.set.Sources()[1]; s.Version != "8" || s.Problem != "no good" {
		t.Errorf("after a refusal the control plane is told as %+v", s)
	}
	f.observed.mu.Lock()
	defer f.observed.mu.Unlock()
	if f.observed.from[XDSSource].Version != "8" || f.observed.refused != 1 {
		t.Errorf("the observer was told %+v, refused %d", f.observed.from, f.observed.refused)
	}
}

// With a control plane nothing is limited before there are rules: not by the default limit either.
func TestControlPlaneTakesTheDefaultLimitsPlace(t *testing.T) {
	f, plane := newFollowed(t, "domain: [")
	f.set.Load(t.Context())
	f.expect("bob", 0)
	if f.set.Ready(t.Context()) == nil {
		t.Error("files that are not valid are not told")
	}
	plane.put(t, planeTwo, "1")
	f.expect("bob", 2)
	select {
	case <-f.set.Loaded():
	default:
		t.Error("the first rules are not told")
	}
	plane.putOf(t, f.set.empty, "2")
	f.expect("bob", 0)
}

func TestSameTableIsNotInstalledAgain(t *testing.T) {
	f, plane := newFollowed(t, fileOne)
	f.set.Load(t.Context())
	table := compiled(t, planeTwo)
	plane.putOf(t, table, "1")
	before := f.table.Load()
	plane.putOf(t, table, "2")
	if f.table.Load() != before || f.set.Sources()[1].Version != "2" {
		t.Error("the same rules were put in force again, or their version is not told")
	}
}

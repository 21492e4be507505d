package k1s0

import (
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/rules"
)

// fields reads the members of an object and collects what is wrong with them. A member that is not asked for is a fault,
// and one that is null counts as left out.
type fields struct {
	object object
	path   string // begins the names of its members in messages
	known  []string
	faults faults
}

// take returns a member, nil if it is not there.
func (f *fields) take(name string) any {
	f.known = append(f.known, name)
	return f.object[name]
}

func (f *fields) fault(name, format string, args ...any) { f.faults.add(f.path+name, format, args...) }

// text reads a string. Code points that Go's decoder puts in place of lone surrogates are refused: different texts would
// become one.
func (f *fields) text(name string) string {
	switch value := f.take(name).(type) {
	case nil:
		return ""
	case string:
		if strings.ContainsRune(value, '\uFFFD') {
			f.fault(name, "must be Unicode text without replacement characters")
			return ""
		}
		return value
	default:
		f.fault(name, "must be a string")
		return ""
	}
}

// integer reads a whole number, in any of JSON's notations.
func (f *fields) integer(name string) (n int64, present bool) {
	value := f.take(name)
	if value == nil {
		return 0, false
	}
	number, ok := value.(json.Number)
	if !ok {
		f.fault(name, "must be an integer")
		return 0, false
	}
	if n, err := number.Int64(); err == nil {
		return n, true
	}
	// 1.0 and 1e3 are integers to JSON Schema. Long exponents would take all memory.
	const longest = 64
	exact, ok := new(big.Rat), false
	if _, exponent, found := strings.Cut(strings.ToLower(number.String()), "e"); len(number) <= longest && (!found || len(exponent) <= 3) {
		exact, ok = exact.SetString(number.String())
	}
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		f.fault(name, "must be an integer of 64 bits")
		return 0, false
	}
	return exact.Num().Int64(), true
}

func (f *fields) boolean(name string, absent bool) bool {
	switch value := f.take(name).(type) {
	case nil:
		return absent
	case bool:
		return value
	default:
		f.fault(name, "must be true or false")
		return absent
	}
}

// window reads a duration such as "60s".
func (f *fields) window(name string) time.Duration {
	before := len(f.faults)
	text := f.text(name)
	if text == "" {
		if f.object[name] != nil && len(f.faults) == before {
			f.fault(name, "must be a duration such as 60s")
		}
		return 0
	}
	window, err := rules.ParseWindow(text)
	if err != nil {
		f.fault(name, "must be a duration such as 250ms, 60s, 1h or 1d")
	}
	return window
}

// list reads a list of objects, each of which is given to read; at most longest of them.
func (f *fields) list(name string, longest int, read func(*fields)) {
	value := f.take(name)
	if value == nil {
		return
	}
	elements, ok := value.([]any)
	if !ok {
		f.fault(name, "must be a list of objects")
		return
	}
	if len(elements) > longest {
		f.fault(name, "must be at most %d", longest)
		return
	}
	for i, element := range elements {
		members, ok := element.(object)
		if !ok {
			f.fault(index(name, i), "must be an object")
			continue
		}
		inner := &fields{object: members, path: f.path + index(name, i) + "."}
		read(inner)
		inner.rest()
		f.faults = append(f.faults, inner.faults...)
	}
}

// child reads an object, if it is there.
func (f *fields) child(name string, read func(*fields)) {
	value := f.take(name)
	if value == nil {
		return
	}
	members, ok := value.(object)
	if !ok {
		f.fault(name, "must be an object")
		return
	}
	inner := &fields{object: members, path: f.path + name + "."}
	read(inner)
	inner.rest()
	f.faults = append(f.faults, inner.faults...)
}

// maxUnknown bounds how many unknown members are named.
const maxUnknown = 20

// rest finds the members that nobody asked for.
func (f *fields) rest() {
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(f.object)) {
		if slices.Contains(f.known, name) {
			continue
		}
		if unknown++; unknown > maxUnknown {
			return
		}
		f.fault(shortened(name), "is unknown: the fields are %s", strings.Join(f.known, ", "))
	}
}

// join adds the faulty fields of err, if it has any, to those that are known: of a field, the first fault is told.
func join(known faults, err error) error { return known.with(asFaults(err)).err() }

// with adds the faults of fields that have none yet.
func (f faults) with(more faults) faults {
	for _, field := range more {
		if !slices.ContainsFunc(f, func(k Field) bool { return k.Name == field.Name }) {
			f = append(f, field)
		}
	}
	return f
}

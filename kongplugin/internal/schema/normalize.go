package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ErrConfig is wrapped by everything that is wrong with a config.
var ErrConfig = errors.New("invalid plugin config")

// Normalize reads a config as Kong sends it and returns what it says in full: every setting with its default, of its type
// and within its bounds, and nothing else.
//
// It takes what Kong sends: null for what is not set, empty objects for empty arrays (Lua has no difference), integers
// written as floats, and members that are no settings (__seq__, __plugin_id, route_id, $refs and whatever comes next). A
// setting that cannot be read is a problem, and has its default in the result, so that the others still hold: whether a
// faulty config lets requests pass is one of them. The result is never nil.
func Normalize(config []byte) (map[string]any, []error) {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.UseNumber() // beyond 2^53 a float64 is another number
	var raw any
	var problems []error
	err := decoder.Decode(&raw)
	if err == nil {
		if _, err = decoder.Token(); errors.Is(err, io.EOF) {
			err = nil
		} else {
			err = errors.New("something follows the object")
		}
	}
	object, ok := raw.(map[string]any)
	switch {
	case err != nil:
		problems = append(problems, fmt.Errorf("%w: no JSON: %w", ErrConfig, err))
	case !ok:
		problems = append(problems, fmt.Errorf("%w: %T is no object", ErrConfig, raw))
	}
	n := normalizer{problems: problems}
	return n.record(Fields(), object, ""), n.problems
}

type normalizer struct{ problems []error }

func (n *normalizer) fault(path, format string, args ...any) {
	n.problems = append(n.problems, fmt.Errorf("%w: %s: %s", ErrConfig, path, fmt.Sprintf(format, args...)))
}

func (n *normalizer) record(fields []Field, raw map[string]any, path string) map[string]any {
	out := make(map[string]any, len(fields))
	for i := range fields {
		f := &fields[i]
		at := path + f.Name
		value, ok := raw[f.Name]
		if ok && value != nil {
			value, ok = n.value(f, value, at)
		}
		if !ok || value == nil {
			value = n.absent(f, at)
		}
		if value != nil {
			out[f.Name] = value
		}
	}
	return out
}

// absent is what stands for a setting that is not there; nil: nothing does.
func (n *normalizer) absent(f *Field, at string) any {
	switch {
	case f.Default != nil:
		return f.Default
	case f.Type == Record:
		return n.record(f.Fields, nil, at+".")
	case f.Required:
		n.fault(at, "is missing: set it")
	}
	return nil
}

// value reads one setting. It is not ok if that cannot be done, or if the setting is as good as absent.
func (n *normalizer) value(f *Field, raw any, at string) (any, bool) {
	switch f.Type {
	case Boolean:
		value, ok := raw.(bool)
		if !ok {
			n.fault(at, "%s is no boolean: write true or false", shown(f, raw))
		}
		return value, ok
	case Integer, Number:
		return n.number(f, raw, at)
	case String:
		return n.text(f, raw, at)
	case Record:
		value, ok := raw.(map[string]any)
		if !ok {
			n.fault(at, "%s is no object", shown(f, raw))
		}
		return n.record(f.Fields, value, at+"."), true
	case Array:
		return n.array(f, raw, at)
	default:
		return nil, false
	}
}

func (n *normalizer) number(f *Field, raw any, at string) (any, bool) {
	text, ok := raw.(json.Number)
	if !ok {
		n.fault(at, "%s is no number", shown(f, raw))
		return nil, false
	}
	value, err := text.Float64()
	if err != nil || math.IsInf(value, 0) || math.IsNaN(value) {
		n.fault(at, "%s is out of range", shown(f, raw))
		return nil, false
	}
	if f.bounded() && (value < f.Min || value > f.Max) {
		n.fault(at, "%s is out of range: write %s to %s", text, plain(f.Min), plain(f.Max))
		return nil, false
	}
	if f.Type == Number {
		return value, true
	}
	if exact, err := strconv.ParseInt(text.String(), 10, 64); err == nil {
		return exact, true
	}
	if value != math.Trunc(value) || math.Abs(value) >= 1<<63 {
		n.fault(at, "%s is no integer", text)
		return nil, false
	}
	return int64(value), true
}

func (n *normalizer) text(f *Field, raw any, at string) (any, bool) {
	value, ok := raw.(string)
	switch {
	case !ok:
		n.fault(at, "%s is no text", shown(f, raw))
		return nil, false
	case value == "":
		return nil, false // Kong's strings have at least one character: an empty one is no setting
	case f.LenMax > 0 && len(value) > f.LenMax:
		n.fault(at, "%d bytes are too long: write at most %d", len(value), f.LenMax)
		return nil, false
	case len(f.OneOf) > 0 && !slices.Contains(f.OneOf, value):
		n.fault(at, "%s is unknown: write one of %s", shown(f, raw), strings.Join(f.OneOf, ", "))
		return nil, false
	}
	return value, true
}

func (n *normalizer) array(f *Field, raw any, at string) (any, bool) {
	elements, ok := raw.([]any)
	if object, is := raw.(map[string]any); is && len(object) == 0 {
		elements, ok = nil, true
	}
	switch {
	case !ok:
		n.fault(at, "%s is no list", shown(f, raw))
		return nil, false
	case len(elements) == 0:
		return nil, false
	case f.LenMax > 0 && len(elements) > f.LenMax:
		n.fault(at, "%d elements are too many: write at most %d", len(elements), f.LenMax)
		return nil, false
	}
	out := make([]any, 0, len(elements))
	for i, element := range elements {
		value, ok := n.value(f.Elements, element, fmt.Sprintf("%s[%d]", at, i+1))
		if !ok {
			if element == nil || element == "" {
				n.fault(fmt.Sprintf("%s[%d]", at, i+1), "is empty: leave it out")
			}
			return nil, false
		}
		out = append(out, value)
	}
	return out, true
}

// maxShown bounds how much of a value an error quotes.
const maxShown = 64

// shown is a value as an error may quote it.
func shown(f *Field, raw any) string {
	if f.Secret {
		return "the value"
	}
	text, err := json.Marshal(raw)
	if err != nil || len(text) > maxShown {
		return fmt.Sprintf("a value of type %T", raw)
	}
	return string(text)
}

func plain(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

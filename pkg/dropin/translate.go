package dropin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/config"
)

// Mode is where the settings come from that are the same whatever the environment says.
const Mode = "weir ratelimit"

// Options are what a translation may look at beside the environment. The zero value looks at nothing.
type Options struct {
	// Readable, if not nil, returns why a file cannot be read. With it a certificate that is not there is a problem of the variable
	// that names it.
	Readable func(path string) error
	// Exists, if not nil, tells whether there is something at a path.
	Exists func(path string) bool
}

// Notice is what an operator should know about one variable that is set.
type Notice struct {
	Variable string
	Text     string
	// Idle is set where envoyproxy/ratelimit would make nothing of the variable either, for what other variables say.
	Idle bool
}

// Translation is an environment in weir's words.
type Translation struct {
	// Settings are what it says, in the order of the table; the later one for the same setting counts.
	Settings []config.Assignment
	// Notices are told once, at the start.
	Notices []Notice
}

// Translate reads an environment, a list of NAME=VALUE, as envoyproxy/ratelimit would. Variables that begin with WEIR_, which beat
// what it says, are config.Load's to read; those that are not in the table are left alone. The error is config.Problems and holds
// all values that cannot be.
func Translate(environ []string, options Options) (*Translation, error) {
	m := &mapping{table: table, options: options, values: map[string]string{}}
	for _, variable := range environ {
		if name, value, ok := strings.Cut(variable, "="); ok {
			m.values[name] = value
		}
	}
	for _, each := range always {
		m.assign(Mode, each.setting, each.value)
	}
	m.check()
	for i := range m.table {
		m.apply(&m.table[i])
	}
	m.finish()
	if len(m.problems) > 0 {
		return nil, m.problems
	}
	return &m.result, nil
}

// mapping is a translation under way.
type mapping struct {
	table    []Variable
	options  Options
	values   map[string]string
	needs    []string // of server.ready_needs
	needFrom string
	result   Translation
	problems config.Problems
}

// check reads every value, so that what asks for one later gets one that is right, or the default.
func (m *mapping) check() {
	for i := range m.table {
		v := &m.table[i]
		if strings.HasSuffix(v.Name, "*") {
			continue
		}
		value, ok := m.values[v.Name]
		if !ok {
			continue
		}
		if err := v.Kind.check(value); err != nil {
			if v.secret {
				err = v.Kind.check("[redacted]")
			}
			m.fault(v.Name, "%s", err)
			delete(m.values, v.Name)
		}
	}
}

func (m *mapping) apply(v *Variable) {
	for _, name := range m.given(v) {
		changed := m.values[name] != v.Default
		switch {
		case !changed:
		case v.needs != nil && !v.needs.holds(m):
			m.result.Notices = append(m.result.Notices, Notice{Variable: name, Text: "has no effect, because it needs that " + v.needs.text, Idle: true})
		case v.instead != "":
			m.notice(name, "%s", v.instead)
		}
	}
	switch {
	case v.needs != nil && !v.needs.holds(m):
	case v.to != nil:
		v.to(m, v)
	case v.setting != "" && m.set(v.Name):
		m.assign(v.Name, v.setting, m.plain(v.Name))
	}
}

// given returns the names of this kind that are set, sorted.
func (m *mapping) given(v *Variable) []string {
	if !strings.HasSuffix(v.Name, "*") {
		if m.set(v.Name) {
			return []string{v.Name}
		}
		return nil
	}
	var names []string
	for name := range m.values {
		if v.names(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (m *mapping) finish() {
	if len(m.needs) > 0 {
		m.list(m.needFrom, "server.ready_needs", m.needs)
	}
}

// need makes readiness depend on something that server.ready_needs knows.
func (m *mapping) need(from, what string) {
	m.needs, m.needFrom = append(m.needs, what), from
}

// set tells whether a variable is set to something that can be read.
func (m *mapping) set(name string) bool {
	_, ok := m.values[name]
	return ok
}

// own tells whether one of weir's own variables is set.
func (m *mapping) own(names ...string) bool { return slices.ContainsFunc(names, m.set) }

// text returns a variable's value, or its default.
func (m *mapping) text(name string) string {
	if value, ok := m.values[name]; ok {
		return value
	}
	if v := m.lookup(name); v != nil {
		return v.Default
	}
	return ""
}

func (m *mapping) bool(name string) bool {
	yes, _ := strconv.ParseBool(m.text(name)) // check has read it
	return yes
}

func (m *mapping) integer(name string) int64 {
	n, _ := strconv.ParseInt(m.text(name), 0, 64)
	return n
}

func (m *mapping) duration(name string) time.Duration {
	d, _ := time.ParseDuration(m.text(name))
	return d
}

// plain returns a value in the form in which weir reads it.
func (m *mapping) plain(name string) string {
	switch v := m.lookup(name); {
	case v == nil:
		return m.text(name)
	case v.Kind == Bool:
		return strconv.FormatBool(m.bool(name))
	case v.Kind == Integer:
		return strconv.FormatInt(m.integer(name), 10)
	default:
		return m.text(name)
	}
}

func (m *mapping) assign(from, setting, value string) {
	m.result.Settings = append(m.result.Settings, config.Assignment{Setting: setting, Value: value, From: from})
}

func (m *mapping) list(from, setting string, values []string) {
	m.result.Settings = append(m.result.Settings, config.Assignment{Setting: setting, List: values, From: from})
}

func (m *mapping) fault(name, format string, args ...any) {
	m.problems = append(m.problems, &config.Problem{Where: name, Message: fmt.Sprintf(format, args...)})
}

func (m *mapping) notice(name, format string, args ...any) {
	m.result.Notices = append(m.result.Notices, Notice{Variable: name, Text: fmt.Sprintf(format, args...)})
}

// file assigns a path, if the variable has one.
func (m *mapping) file(name, setting string) {
	path := m.text(name)
	if path == "" {
		return
	}
	if m.options.Readable != nil {
		if err := m.options.Readable(path); err != nil {
			m.fault(name, "%q cannot be read: %s: mount the file there, or name another one", path, cause(err))
			return
		}
	}
	m.assign(name, setting, path)
}

// cause is the last error of a chain: without the path, which has been told.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func (m *mapping) lookup(name string) *Variable {
	for i := range m.table {
		if m.table[i].Name == name {
			return &m.table[i]
		}
	}
	return nil
}

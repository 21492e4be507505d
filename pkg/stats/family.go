package stats

import (
	"strings"
	"sync"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// other is the name of whatever is beyond a bound.
const other = "other"

// maxName bounds a name that holds values of requests, in bytes.
const maxName = 1024

// family are the names of one rule: the one that is known from the rule alone, and those that hold values of requests.
type family struct {
	plain series
	found uint64 // under Stats.mu: the generation in which a rule was last found to have it

	mu     sync.RWMutex
	values map[string]*series // by the name before it is sanitised
}

func newFamily(name string) *family {
	return &family{plain: series{name: sanitised(name)}}
}

// value returns the counters of the name that the rule has for these entries. If it has most of them already, those of the
// name without values.
func (f *family) value(rule *ratelimit.Rule, entries []ratelimit.Entry, most int) *series {
	var buffer [maxName]byte
	return f.named(appendName(buffer[:0], rule, entries), most)
}

func (f *family) named(name []byte, most int) *series {
	f.mu.RLock()
	found := f.values[string(name)]
	full := len(f.values) >= most
	f.mu.RUnlock()
	switch {
	case found != nil:
		return found
	case full:
		return &f.plain
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.values[string(name)]; found != nil {
		return found
	}
	if len(f.values) >= most {
		return &f.plain
	}
	if f.values == nil {
		f.values = make(map[string]*series)
	}
	raw := string(name)
	added := &series{name: sanitised(raw)}
	f.values[raw] = added
	return added
}

// each visits the family's counters that are to be shown: the plain ones if they are used, or listed anyway, and all others.
func (f *family) each(visit func(*series)) {
	visit(&f.plain)
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, s := range f.values {
		visit(s)
	}
}

// ruleNames are the names of one rule.
type ruleNames struct {
	*family
	valued bool // they hold values of requests
}

// find returns the names of a rule.
func (s *Stats) find(rule *ratelimit.Rule) *ruleNames {
	if found, ok := s.byRule.Load(rule); ok {
		return found.(*ruleNames)
	}
	return s.first(rule)
}

// first finds the names at the first decision of a rule since the table is in force.
func (s *Stats) first(rule *ratelimit.Rule) *ruleNames {
	var buffer [maxName]byte
	name := appendRuleName(buffer[:0], rule)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.families[string(name)]
	switch {
	case found != nil:
	case len(s.families) < s.options.MaxRules:
		found = newFamily(string(name))
		s.families[string(name)] = found
	default:
		found = s.other
	}
	found.found = s.generation
	names := &ruleNames{found, found != s.other && showsValues(rule)}
	s.byRule.Store(rule, names)
	return names
}

// overridden returns the counters of a limit that the caller sent. Its name holds all values.
func (s *Stats) overridden(domain string, entries []ratelimit.Entry) *series {
	s.mu.RLock()
	f := s.override[domain]
	s.mu.RUnlock()
	if f == nil {
		s.mu.Lock()
		if f = s.override[domain]; f == nil {
			if len(s.override) >= s.options.MaxRules {
				s.mu.Unlock()
				return &s.other.plain
			}
			domain = strings.Clone(domain)
			f = newFamily(domain + "." + other)
			s.override[domain] = f
		}
		s.mu.Unlock()
	}
	var buffer [maxName]byte
	return f.named(appendEntries(append(buffer[:0], domain...), entries), s.options.MaxValues)
}

// notFound counts the descriptors of an unknown domain.
type notFound struct {
	name  string
	count counter
}

func (s *Stats) notFound(domain string) *notFound {
	if len(domain) > maxName {
		return s.elsewise
	}
	s.mu.RLock()
	found := s.unknown[domain]
	full := len(s.unknown) >= s.options.MaxValues
	s.mu.RUnlock()
	switch {
	case found != nil:
		return found
	case full:
		return s.elsewise
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.unknown[domain]; found != nil {
		return found
	}
	if len(s.unknown) >= s.options.MaxValues {
		return s.elsewise
	}
	domain = strings.Clone(domain)
	found = &notFound{name: sanitised(domain)}
	s.unknown[domain] = found
	return found
}

// RulesInForce tells which rules are in force now. Call it once they are, and not twice at the same time: the counters of rules
// that are not among them are dropped, after a Flusher has sent what they grew by. A decision by an older table that is still
// under way may bring one back, until the next time.
//
// It keeps decisions from being counted for the time only in which it drops what is gone.
func (s *Stats) RulesInForce(rules []*ratelimit.Rule) {
	s.mu.Lock()
	s.rules = rules
	s.generation++
	generation, used := s.generation, len(s.families) > 0
	s.mu.Unlock()
	if !used {
		return
	}
	kept := s.keep(rules)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, f := range s.families {
		if kept[f] || f.found == generation {
			continue
		}
		delete(s.families, name)
		if s.flushed {
			f.each(func(each *series) { s.retired = append(s.retired, each) })
		}
	}
}

// keep forgets all rules but these, and returns their families.
func (s *Stats) keep(rules []*ratelimit.Rule) map[*family]bool {
	current := make(map[*ratelimit.Rule]bool, len(rules)) // with whether it is among byRule
	for _, rule := range rules {
		current[rule] = false
	}
	kept := make(map[*family]bool)
	s.byRule.Range(func(key, value any) bool {
		rule, names := key.(*ratelimit.Rule), value.(*ruleNames)
		if _, ok := current[rule]; !ok || names.family == s.other { // there may be room for it now
			s.byRule.Delete(rule)
			return true
		}
		current[rule], kept[names.family] = true, true
		return true
	})
	var buffer [maxName]byte
	for rule, known := range current {
		if known {
			continue
		}
		name := appendRuleName(buffer[:0], rule)
		s.mu.RLock()
		f := s.families[string(name)]
		s.mu.RUnlock()
		if f != nil {
			kept[f] = true
		}
	}
	return kept
}

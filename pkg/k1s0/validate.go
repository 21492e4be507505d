package k1s0

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rulestore"
)

// The longest texts that a check may have, in bytes, and how many parts.
const (
	maxIdentifier  = 8 << 10
	maxRequestID   = 256
	maxDescriptors = 100
	maxEntries     = 32
)

// Scopes are those that a stored rule may have.
var Scopes = []string{"service", "user", "endpoint"}

// validateCheck reports everything that is wrong with a check.
func (s *Service) validateCheck(c *Check) error {
	var f faults
	byRule := c.RuleID != "" || c.Subject != ""
	byDescriptors := c.Domain != "" || len(c.Descriptors) > 0
	byScope := c.Scope != "" || c.Identifier != ""
	switch {
	case byScope && (byRule || byDescriptors):
		f.add("scope", "cannot be combined: send scope and identifier, or rule_id and subject, or domain and descriptors")
	case byRule && byDescriptors:
		f.add("rule_id", "cannot be combined: send rule_id and subject, or domain and descriptors")
	case byRule:
		f.require("rule_id", c.RuleID)
		f.text("subject", c.Subject, maxIdentifier)
	case byDescriptors:
		f.require("domain", c.Domain)
		f.text("domain", c.Domain, maxIdentifier)
		f.descriptors(c.Descriptors)
		if c.Window != 0 {
			f.add("window", "cannot be combined with descriptors")
		}
	default:
		s.identified(&f, c.Scope, c.Identifier)
	}
	switch {
	case c.RulesOnly && !byDescriptors:
		f.add("rules_only", "is for domain and descriptors")
	case c.RulesOnly && slices.ContainsFunc(c.Descriptors, func(d ratelimit.Descriptor) bool { return d.Limit != nil }):
		f.add("rules_only", "cannot be combined with a descriptor's limit")
	}
	f.window("window", c.Window)
	f.cost("cost", c.Cost)
	f.text("request_id", c.RequestID, maxRequestID)
	return f.err()
}

// identified checks a scope and an identifier in it.
func (s *Service) identified(f *faults, scope, identifier string) {
	if f.require("scope", scope) {
		s.scope(f, scope)
	}
	f.require("identifier", identifier)
	f.text("identifier", identifier, maxIdentifier)
}

// scope refuses scopes that nothing is known of, which are slips. Rule files may use more than those of stored rules.
func (s *Service) scope(f *faults, scope string) {
	table := s.Rules.View().Table
	if slices.Contains(Scopes, scope) || table.Knows(s.Domain, scope) {
		return
	}
	known := slices.Clone(Scopes)
	for _, key := range table.Keys(s.Domain) {
		if !slices.Contains(known, key) && len(known) < 20 {
			known = append(known, key)
		}
	}
	f.add("scope", "must be one of: %s", strings.Join(known, ", "))
}

// index is how an element of a list is called.
func index(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

func (f *faults) require(name, value string) bool {
	if value == "" {
		f.add(name, "is required")
	}
	return value != ""
}

func (f *faults) text(name, value string, longest int) {
	switch {
	case len(value) > longest:
		f.add(name, "must have at most %d bytes", longest)
	case !utf8.ValidString(value):
		f.add(name, "must be UTF-8")
	}
}

// printable is text for what logs, tables and terminals show.
func (f *faults) printable(name, value string, longest int) {
	f.text(name, value, longest)
	if strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp) }) {
		f.add(name, "must not hold control characters")
	}
}

func (f *faults) window(name string, window time.Duration) {
	if window != 0 && (window < ratelimit.MinWindow || window > ratelimit.MaxWindow || window%time.Microsecond != 0) {
		f.add(name, "must be whole microseconds from %v to %v", ratelimit.MinWindow, ratelimit.MaxWindow)
	}
}

func (f *faults) cost(name string, cost int64) {
	if cost < -ratelimit.MaxCost || cost > ratelimit.MaxCost {
		f.add(name, "must be from %d to %d", int64(-ratelimit.MaxCost), int64(ratelimit.MaxCost))
	}
}

func (f *faults) descriptors(descriptors []ratelimit.Descriptor) {
	switch {
	case len(descriptors) == 0:
		f.add("descriptors", "is required")
	case len(descriptors) > maxDescriptors:
		f.add("descriptors", "must be at most %d", maxDescriptors)
		return
	}
	for i := range descriptors {
		entries := descriptors[i].Entries
		name := index("descriptors", i) + ".entries"
		if len(entries) == 0 {
			f.add(name, "is required")
		}
		if len(entries) > maxEntries {
			f.add(name, "must be at most %d", maxEntries)
			continue
		}
		for j := range entries {
			f.require(index(name, j)+".key", entries[j].Key)
			f.text(index(name, j)+".key", entries[j].Key, maxIdentifier)
			f.text(index(name, j)+".value", entries[j].Value, maxIdentifier)
		}
		if descriptors[i].HasCost {
			f.cost(index("descriptors", i)+".cost", descriptors[i].Cost)
		}
		if limit := descriptors[i].Limit; limit != nil {
			f.limit(index("descriptors", i)+".limit.", *limit)
		}
	}
}

// validateRule reports everything that is wrong with a rule to be written, and fills in what was left out.
func validateRule(in *RuleInput) error {
	var f faults
	if f.require("scope", in.Scope) && !slices.Contains(Scopes, in.Scope) {
		f.add("scope", "must be one of: %s", strings.Join(Scopes, ", "))
	}
	f.require("identifier_pattern", in.Pattern)
	f.printable("identifier_pattern", in.Pattern, rulestore.MaxPatternLength)
	f.printable("name", in.Name, rulestore.MaxNameLength)
	sound := f.between("limit", in.Limit, ratelimit.MaxCount)
	sound = f.between("window_seconds", in.WindowSeconds, rulestore.MaxWindowSeconds) && sound
	if in.Algorithm == "" {
		in.Algorithm = ratelimit.TokenBucket.String()
	}
	algorithm := f.algorithm("algorithm", in.Algorithm)
	if in.Burst < 0 || in.Burst > ratelimit.MaxCount {
		f.add("burst", "must be from 0 to %d", int64(ratelimit.MaxCount))
		sound = false
	}
	if sound && algorithm != 0 {
		f.limit("", ratelimit.Limit{Algorithm: algorithm, Count: in.Limit, Burst: in.Burst, Window: time.Duration(in.WindowSeconds) * time.Second})
	}
	if in.Name == "" && len(f) == 0 {
		in.Name = defaultName(in.Scope, in.Pattern)
	}
	return f.err()
}

// between checks a number that must be from 1 to highest.
func (f *faults) between(name string, n, highest int64) bool {
	switch {
	case n <= 0:
		f.add(name, "must be greater than 0")
	case n > highest:
		f.add(name, "must be at most %d", highest)
	default:
		return true
	}
	return false
}

// algorithm reads an algorithm's name; it returns 0 for none that is known.
func (f *faults) algorithm(name, value string) ratelimit.Algorithm {
	algorithm, err := ratelimit.ParseAlgorithm(value)
	if err == nil {
		return algorithm
	}
	names := make([]string, 0, len(ratelimit.Algorithms()))
	for _, known := range ratelimit.Algorithms() {
		names = append(names, known.String())
	}
	f.add(name, "must be one of: %s", strings.Join(names, ", "))
	return 0
}

// limit checks what goes together in the fields that begin with path. Each number is in its range already, so it is the burst or
// the algorithm that is wrong.
func (f *faults) limit(path string, limit ratelimit.Limit) {
	field := path + "algorithm"
	if limit.Burst != 0 {
		field = path + "burst"
	}
	if err := limit.Check(); err != nil {
		f.add(field, "does not fit: %s", strings.TrimPrefix(err.Error(), ratelimit.ErrLimit.Error()+": "))
	}
}

// defaultName is the name of a rule that was given none.
func defaultName(scope, pattern string) string {
	name := scope + "-" + pattern
	for len(name) > rulestore.MaxNameLength {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name
}

package rules

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// maxTried bounds how many patterns that do not match an explanation lists at one level.
const maxTried = 20

// Explanation says level by level why a descriptor matches what it matches.
type Explanation struct {
	Domain string
	Match  Match
	Steps  []Step // one for each entry that was looked at
	Reason string // what came out, and why
}

// Step is the search for one entry's definition.
type Step struct {
	Entry ratelimit.Entry
	// Tried is what was compared with the entry, in order of precedence, and how it ended.
	Tried []string
	// Path is the place of the definition that won, as in Rule.Path. Empty: none did, and the search ended here.
	Path string
}

// String writes the explanation for people: a line for each comparison. What does not print is escaped.
func (e Explanation) String() string {
	var b strings.Builder
	for i, step := range e.Steps {
		fmt.Fprintf(&b, "%d. %s\n", i+1, entryText(step.Entry))
		for _, tried := range step.Tried {
			fmt.Fprintf(&b, "   - %s\n", tried)
		}
	}
	b.WriteString(e.Reason)
	b.WriteByte('\n')
	return b.String()
}

// Explain is Match with reasons. It is for people and takes its time.
func (t *Table) Explain(domain string, entries []ratelimit.Entry) Explanation {
	e := Explanation{Domain: domain, Match: t.Match(domain, entries)}
	d := t.domains[domain]
	switch {
	case d == nil && t.safe != nil:
		e.Reason = fmt.Sprintf("no rules are loaded: the safe default applies to every domain, %q included", domain)
		return e
	case d == nil:
		e.Reason = fmt.Sprintf("domain %q is unknown: nothing matches; known are: %s", domain, strings.Join(t.names, ", "))
		return e
	}
	why := d.explain(&e, entries)
	switch rule := e.Match.Rule; {
	case rule == nil:
		e.Reason = fmt.Sprintf("nothing matches: %s, and domain %q has no default", why, domain)
	case e.Match.Default:
		e.Reason = fmt.Sprintf("the default of domain %q applies (%s): %s", domain, rule.Source, why)
	default:
		e.Reason = fmt.Sprintf("rule %s applies (%s): %s", rule.Label(), rule.Source, why)
	}
	return e
}

// explain walks as find does, and writes down what it sees. It returns why the walk ended as it did.
func (d *domain) explain(e *Explanation, entries []ratelimit.Entry) string {
	if len(entries) == 0 {
		return "the descriptor has no entries"
	}
	at := &d.root
	for i, entry := range entries {
		n, step := at.explain(entry)
		if n != nil {
			step.Path = pathOf([]ratelimit.EntryMatch{*n.at})
			if i > 0 {
				step.Path = e.Steps[i-1].Path + "|" + step.Path
			}
		}
		e.Steps = append(e.Steps, step)
		last := i == len(entries)-1
		switch {
		case n == nil:
			return fmt.Sprintf("no definition at level %d fits %s", i+1, entryText(entry))
		case last && n.rule == nil:
			return fmt.Sprintf("%s has no limit at level %d, the descriptor's depth", step.Path, i+1)
		case last:
			return fmt.Sprintf("%s has a limit at level %d, the descriptor's depth", step.Path, i+1)
		case n.next == nil:
			return fmt.Sprintf("%s has no descriptors below it, and the descriptor has %d levels", step.Path, len(entries))
		}
		at = n.next
	}
	return ""
}

// explain is match with reasons.
func (l *level) explain(entry ratelimit.Entry) (*node, Step) {
	step := Step{Entry: entry}
	tried := func(format string, args ...any) { step.Tried = append(step.Tried, fmt.Sprintf(format, args...)) }
	winner := l.match(entry.Key, entry.Value)
	b := l.keys[entry.Key]
	if b != nil && b.exact[entry.Value] != nil {
		tried("exact value: %s matches", pathOf([]ratelimit.EntryMatch{*winner.at}))
		return winner, step
	}
	tried("exact value: none")
	omitted := 0
	for _, n := range l.ranked {
		if !newWildcard(n.at.Key).match(entry.Key) {
			continue
		}
		place := pathOf([]ratelimit.EntryMatch{*n.at})
		if n == winner {
			if omitted > 0 {
				tried("%d more patterns do not match", omitted)
			}
			tried("pattern: %s matches", place)
			return winner, step
		}
		if len(step.Tried) > maxTried {
			omitted++
			continue
		}
		tried("pattern: %s does not match", place)
	}
	if omitted > 0 {
		tried("%d more patterns do not match", omitted)
	}
	if winner != nil {
		tried("any value: %s matches", pathOf([]ratelimit.EntryMatch{*winner.at}))
	} else {
		tried("any value: none")
	}
	return winner, step
}

func entryText(entry ratelimit.Entry) string {
	var b strings.Builder
	escape(&b, entry.Key, "%=")
	b.WriteByte('=')
	escape(&b, entry.Value, "%")
	return b.String()
}

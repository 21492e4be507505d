package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// DefaultDomain is the domain of rules that name none, unless Options say otherwise.
	DefaultDomain = "k1s0"
	// MaxDepth is how many levels descriptors may nest.
	MaxDepth = 32
	// maxName bounds the bytes of names and IDs, which go into replies, logs and metric labels.
	maxName = 256
)

// Options are the settings of Compile and Load. The zero value is usable.
type Options struct {
	// DefaultDomain is the domain of rules that name none. Defaults to "k1s0".
	DefaultDomain string
	// MergeDomains lets several files, or several documents of one, contribute to one domain. Defaults to an error.
	MergeDomains bool
	// EnvoyKeys counts every rate_limit under the key of envoyproxy/ratelimit: see ratelimit.Limit.EnvoyKey.
	EnvoyKeys bool
}

func (o Options) withDefaults() Options {
	o.DefaultDomain = cmp.Or(o.DefaultDomain, DefaultDomain)
	return o
}

// Compile checks the definitions of all sources together and builds a table of them, which keeps the sources. The error is
// Problems, and holds everything that is wrong. No sources, or sources without domains, give an empty table, in which every domain is unknown.
//
// The order of sources counts where they share a domain: patterns of an earlier one win.
func Compile(opts Options, sources ...*Source) (*Table, error) {
	return newCompiler(opts, layer{sources: sources}).finish(nil)
}

// Recompile is Compile with t's options, in the time that takes what is new: a domain whose definitions are those of t, and not only
// equal to them, is taken as it is.
func (t *Table) Recompile(sources ...*Source) (*Table, error) {
	return newCompiler(t.opts, layer{sources: sources}).finish([]*Table{t})
}

type compiler struct {
	opts     Options
	problems problemList
	table    *Table

	// Of the domain that is being compiled:
	at        *domain
	digest    *digest
	ids       map[string]located
	replacing []replacement // the names that its rules replace
}

// replacement is one name of a rule's replaces.
type replacement struct {
	by    located
	name  string
	index int
}

// located is a definition and where it comes from.
type located struct {
	*Definition
	source *Source
	domain string
	path   string
	layer  int
}

func newCompiler(opts Options, layers ...layer) *compiler {
	opts = opts.withDefaults()
	return &compiler{opts: opts, table: &Table{opts: opts, layers: layers}}
}

// finish compiles the table's layers. Domains that one of the tables in reuse has compiled already are taken from there.
func (c *compiler) finish(reuse []*Table) (*Table, error) {
	c.compile(reuse)
	problems := c.problems.sorted()
	if problems.fatal() {
		return nil, problems
	}
	c.table.warnings = problems
	return c.table, nil
}

func (c *compiler) compile(reuse []*Table) {
	parts := c.gather()
	domains := make(map[string]*domain, len(parts))
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		d := reused(reuse, name, parts[name])
		if d == nil {
			d = c.domain(name, parts[name])
		} else {
			c.problems.add(d.warnings...)
		}
		domains[name] = d
	}
	c.assemble(domains)
}

// place is what two definitions of one level must not share.
type place struct {
	key, pattern string
	kind         ratelimit.MatchKind
}

// candidate is a pattern on its way to its rank.
type candidate struct {
	located
	node    *node
	pattern pattern // of the value; zero where the key alone holds a '*'
}

// level compiles definitions that stand side by side, and all below them. It returns nil where there is none in force.
func (c *compiler) level(domain string, above []ratelimit.EntryMatch, definitions []located, depth int, disabled bool) *level {
	c.digest.number(int64(len(definitions)))
	if len(definitions) == 0 {
		return nil
	}
	c.at.rules = slices.Grow(c.at.rules, len(definitions))
	if depth > MaxDepth {
		c.fault(definitions[0], fmt.Sprintf("descriptors nest deeper than %d levels", MaxDepth), "use fewer levels", nil)
		return nil
	}
	l := &level{keys: map[string]*branch{}}
	taken := make(map[place]located, len(definitions))
	var candidates []candidate
	bare := map[string]located{}
	for _, each := range definitions {
		if each.Key == "" {
			c.fault(each, "the descriptor has no key", "write a key", nil, "key")
			continue
		}
		compiled, ok := c.value(each)
		if !ok {
			continue
		}
		at := place{each.Key, compiled.text, compiled.kind}
		if c.yields(each, taken, at) {
			continue
		}
		levels := append(slices.Clip(above), ratelimit.EntryMatch{
			Key: at.key, Kind: at.kind, Pattern: at.pattern, Shared: each.ShareThreshold, ValueToMetric: each.ValueToMetric,
		})
		own := &levels[len(levels)-1]
		each.path = pathOf(levels)
		off := disabled || each.Disabled
		if other, ok := taken[at]; ok {
			c.fault(each, fmt.Sprintf("two rules for the same place, %s: the other one is at %s", each.path, other.where()),
				"merge them, or remove one", nil, "key")
			off = true // nothing more to say about it
		} else {
			taken[at] = each
		}
		c.digest.place(own, each.Priority, off)
		n := &node{at: own, rule: c.rule(each, levels, off)}
		deeper := make([]located, len(each.Descriptors))
		for i := range each.Descriptors {
			deeper[i] = located{Definition: &each.Descriptors[i], source: each.source, domain: domain, layer: each.layer}
		}
		n.next = c.level(domain, levels, deeper, depth+1, off)
		switch {
		case off:
		case compiled.kind != ratelimit.MatchAny && compiled.kind != ratelimit.MatchExact || strings.Contains(each.Key, "*"):
			candidates = append(candidates, candidate{located: each, node: n, pattern: compiled.pattern})
		case compiled.kind == ratelimit.MatchExact:
			b := l.branch(each.Key)
			if b.exact == nil {
				b.exact = map[string]*node{}
			}
			b.exact[compiled.text] = n
		default:
			l.branch(each.Key).any = n
			bare[each.Key] = each
		}
	}
	c.rank(l, candidates, bare)
	return l
}

// branch returns the branch of a key, made if need be.
func (l *level) branch(key string) *branch {
	b := l.keys[key]
	if b == nil {
		b = &branch{}
		l.keys[key] = b
	}
	return b
}

// compiledValue is what a definition asks of an entry's value.
type compiledValue struct {
	pattern
	kind ratelimit.MatchKind
}

// value compiles a definition's value or pattern, and reports what does not go together.
func (c *compiler) value(d located) (compiledValue, bool) {
	v := compiledValue{kind: ratelimit.MatchAny}
	switch {
	case d.Match != nil && d.Value != "":
		c.fault(d, "value and match exclude each other", "keep one of them", nil, "match")
		return v, false
	case d.Match != nil && kindNames[d.Match.Kind] == "":
		c.fault(d, fmt.Sprintf("match kind %d is none of a pattern", d.Match.Kind), "write one of "+strings.Join(matchFields, ", "), nil, "match")
		return v, false
	case d.Match != nil:
		v.kind = d.Match.Kind
	case strings.Contains(d.Value, "*"):
		v.kind = ratelimit.MatchWildcard
	case d.Value != "":
		v.kind = ratelimit.MatchExact
	}
	if v.kind == ratelimit.MatchAny || v.kind == ratelimit.MatchExact {
		v.text = d.Value
		if d.ShareThreshold {
			c.fault(d, "share_threshold needs a pattern whose values share the counter",
				"write a value with a '*', or a match, or remove share_threshold", nil, "share_threshold")
			return v, false
		}
		if d.Priority != 0 && !strings.Contains(d.Key, "*") {
			c.warn(d, "priority orders patterns only, and this is none", "remove it", "priority")
		}
		return v, true
	}
	text, at := d.Value, []any{"value"}
	if d.Match != nil {
		text, at = d.Match.Text, []any{"match", kindNames[v.kind]}
	}
	compiled, fix, err := compilePattern(v.kind, text)
	if err != nil {
		c.fault(d, err.Error(), fix, nil, at...)
		return v, false
	}
	if v.kind == ratelimit.MatchCIDR && compiled.text != text {
		c.warn(d, fmt.Sprintf("the CIDR block %q is taken as %s", text, compiled.text), "write "+compiled.text, at...)
	}
	v.pattern = compiled
	return v, true
}

// rank puts the patterns of a level in order, builds what finds them, and warns of definitions that can never match.
func (c *compiler) rank(l *level, candidates []candidate, bare map[string]located) {
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(b.Priority, a.Priority) })
	blocksOf := map[string][]block{}
	everything := unranked // the first pattern that matches every key and value
	for i, each := range candidates {
		rank := int32(i)
		l.ranked = append(l.ranked, each.node)
		covering := everything
		key := newWildcard(each.Key)
		if key.whole {
			patterns := l.branch(each.Key).patternSet()
			covering = min(covering, patterns.covering(each.pattern))
			if each.pattern.block.IsValid() {
				blocksOf[each.Key] = append(blocksOf[each.Key], block{each.pattern.block, rank})
			} else {
				patterns.add(each.pattern, rank)
			}
		} else {
			value := each.pattern.alone(each.node.at)
			l.wild = append(l.wild, wildKey{rank: rank, key: key, value: value})
			if value == nil && key.everything() {
				everything = min(everything, rank)
			}
		}
		if covering != unranked {
			c.never(each.located, candidates[covering].located, reorder)
		}
	}
	for key, all := range blocksOf {
		found := newBlocks(all, func(inner, outer int32) {
			c.never(candidates[inner].located, candidates[outer].located, reorder)
		})
		l.keys[key].patterns.blocks = &found
	}
	for key, each := range bare {
		covering := everything
		if patterns := l.keys[key].patterns; patterns != nil {
			covering = min(covering, patterns.covering(pattern{}))
		}
		if covering != unranked {
			c.never(each, candidates[covering].located, "remove one of them")
		}
	}
}

// unknownReplaces warns of names that no rule of the domain has.
func (c *compiler) unknownReplaces(replacing []replacement, rules []*ratelimit.Rule) {
	if len(replacing) == 0 {
		return
	}
	names := make(map[string]bool, len(rules))
	for _, r := range rules {
		names[r.Name] = true
	}
	for _, each := range replacing {
		if !names[each.name] {
			c.warn(each.by, fmt.Sprintf("replaces names %q, which no rule of domain %q has", each.name, each.by.domain),
				"write the name of a rule, or remove it", "rate_limit", "replaces", each.index, "name")
		}
	}
}

// reorder is what helps a pattern that another one hides.
const reorder = "move it up, give it a higher priority, or remove it"

func (c *compiler) never(d, because located, fix string) {
	c.warn(d, fmt.Sprintf("%s can never match: %s at %s comes first and matches all that it would", d.path, because.path, because.where()), fix, "key")
}

// rule compiles what a definition does; nil if it does nothing by itself.
func (c *compiler) rule(d located, levels []ratelimit.EntryMatch, disabled bool) *ratelimit.Rule {
	if d.RateLimit == nil && len(d.Limits) == 0 && d.Action == ratelimit.ActionLimit {
		if d.ID != "" {
			c.warn(d, "id has no effect without a limit or an action", "remove it, or add limits", "id")
		}
		if d.Lease != (ratelimit.Lease{}) {
			c.fault(d, "lease has no effect without a limit", "remove it, or add a limit", nil, "lease")
		}
		if d.OnFailure != ratelimit.FailureDefault {
			c.warn(d, "on_store_failure has no effect without a limit", "remove it, or add limits", "on_store_failure")
		}
		c.digest.flag(false)
		return nil
	}
	c.digest.flag(true)
	if levels == nil {
		disabled = d.Disabled
	}
	r := &ratelimit.Rule{
		ID: d.ID, Name: d.Name, Domain: d.domain, Path: d.path, Match: levels,
		Action: d.Action, Shadow: d.Shadow, QuotaMode: d.QuotaMode, Disabled: disabled,
		DetailedMetric: d.DetailedMetric, OnFailure: d.OnFailure, Metadata: d.Metadata,
		Source: d.line(),
	}
	c.checkName(d, d.Name, "name", "name")
	c.checkName(d, d.ID, "id", "id")
	c.limits(d, r)
	if r.ID == "" {
		path := d.path
		if levels == nil {
			path = ""
		}
		r.ID = ruleID(d.domain, path)
	}
	if other, ok := c.ids[r.ID]; ok && (d.ID != "" || other.ID != "") {
		c.taken(d, r.ID, other.where())
	} else if !ok {
		c.ids[r.ID] = d
	}
	if d.ID != "" {
		c.at.identified = append(c.at.identified, d)
	}
	c.digest.rule(r)
	c.at.rules = append(c.at.rules, r)
	return r
}

// limits fills in a rule's limits from whichever form they have.
func (c *compiler) limits(d located, r *ratelimit.Rule) {
	switch {
	case d.RateLimit != nil && len(d.Limits) > 0:
		c.fault(d, "rate_limit and limits exclude each other", "keep one of them", nil, "limits")
	case d.Action != ratelimit.ActionLimit && (d.RateLimit != nil || len(d.Limits) > 0):
		c.fault(d, "an action of allow or deny counts nothing, so it has no limits", "remove action, or the limits", nil, "action")
	case d.RateLimit != nil:
		c.rateLimit(d, r)
		if r.Unlimited {
			c.placeLease(d, r)
		}
	default:
		r.Limits = slices.Clone(d.Limits)
		c.placeLease(d, r)
		for i := range r.Limits {
			c.checkLimit(d, &r.Limits[i], "limits", i)
		}
	}
}

// checkLimit checks a limit and points at the field that is at fault.
func (c *compiler) checkLimit(d located, l *ratelimit.Limit, at ...any) {
	c.checkName(d, l.Name, "name", append(slices.Clone(at), "name")...)
	err := l.Check()
	if err == nil {
		return
	}
	if unleased := *l; l.Lease != (ratelimit.Lease{}) {
		if unleased.Lease = (ratelimit.Lease{}); unleased.Check() == nil {
			c.checkLease(d, err)
			return
		}
	}
	field := ""
	switch {
	case l.Algorithm == 0:
		field = "algorithm"
	case l.Count < 0 || l.Count > ratelimit.MaxCount || l.Algorithm == ratelimit.SlidingLog && l.Count > ratelimit.MaxLogCount:
		field = "limit"
	case l.Window < ratelimit.MinWindow || l.Window > ratelimit.MaxWindow || l.Window%time.Microsecond != 0:
		field = "window"
	case l.Burst != 0:
		field = "burst"
	}
	if l.Window < ratelimit.MinWindow || l.Window > ratelimit.MaxWindow {
		c.fault(d, fmt.Sprintf("window %s is out of range", formatWindow(l.Window)),
			fmt.Sprintf("write %s to %s", formatWindow(ratelimit.MinWindow), formatWindow(ratelimit.MaxWindow)), err, append(slices.Clone(at), "window")...)
		return
	}
	message := strings.TrimPrefix(err.Error(), ratelimit.ErrLimit.Error()+": ")
	fix := ""
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message, fix = message[:i], message[i+2:]
	}
	if field != "" {
		at = append(slices.Clone(at), field)
	}
	c.fault(d, message, fix, err, at...)
}

// checkName refuses what must not reach replies, headers and logs.
func (c *compiler) checkName(d located, name, what string, at ...any) {
	switch {
	case len(name) > maxName:
		c.fault(d, fmt.Sprintf("%s of %d bytes is too long", what, len(name)), fmt.Sprintf("write at most %d bytes", maxName), nil, at...)
	case !utf8.ValidString(name):
		c.fault(d, fmt.Sprintf("%s %q is not UTF-8", what, name), "write it in UTF-8", nil, at...)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' }):
		c.fault(d, fmt.Sprintf("%s %q holds a control character", what, name), "write it without line breaks, tabs and the like", nil, at...)
	}
}

// line is FILE:LINE, as in Rule.Source.
func (d located) line() string {
	line, _ := d.at()
	return Problem{File: d.source.Name, Line: line}.where()
}

// where is FILE:LINE:COLUMN, or the source's name alone.
func (d located) where(at ...any) string {
	line, column := d.at(at...)
	return Problem{File: d.source.Name, Line: line, Column: column}.where()
}

func (c *compiler) fault(d located, message, fix string, cause error, at ...any) {
	c.report(d, Problem{Message: message, Fix: fix, cause: cause}, at)
}

func (c *compiler) warn(d located, message, fix string, at ...any) {
	c.report(d, Problem{Message: message, Fix: fix, Warning: true}, at)
}

// report adds the position, or else the place in words.
func (c *compiler) report(d located, p Problem, at []any) {
	p.File = d.source.Name
	p.Line, p.Column = d.at(at...)
	if p.Line == 0 {
		p.Message = fmt.Sprintf("domain %q, %s: %s", d.domain, cmp.Or(d.path, d.Key, "itself"), p.Message)
	}
	c.problems.add(p)
}

package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// maxPattern bounds the bytes of a pattern.
	maxPattern = 1024
	// maxProgram bounds the instructions of a regular expression: what one costs for each byte of a value.
	maxProgram = 1000
)

// patternSet finds, among all patterns of one key at one level, the one of the lowest rank that matches.
type patternSet struct {
	prefixes, suffixes trie
	blocks             *blocks // nil: none
}

func (s *patternSet) match(value string) int32 {
	best := s.prefixes.find(value, unranked)
	best = s.suffixes.find(value, best)
	if s.blocks != nil {
		best = min(best, s.blocks.find(value))
	}
	return best
}

// add stores a pattern that is no block. Ranks must be added in ascending order.
func (s *patternSet) add(p pattern, rank int32) {
	if p.backward {
		s.suffixes.add(p.suffix, rank, p.matcher)
		return
	}
	s.prefixes.add(p.prefix, rank, p.matcher)
}

// covering returns the lowest rank of the stored patterns that match everything that p does, as far as prefixes and
// suffixes tell. The zero pattern stands for all values.
func (s *patternSet) covering(p pattern) int32 {
	return min(s.prefixes.covering(p.prefix), s.suffixes.covering(p.suffix))
}

// pattern is one compiled value pattern: literal text with which a value must begin or end, and a matcher unless this
// is all.
type pattern struct {
	text           string // as written, or in one form where there are several
	prefix, suffix string
	matcher        matcher // nil: prefix, or else suffix, is all there is to it
	backward       bool    // found by its suffix
	block          netip.Prefix
}

// compilePattern reads a pattern of a kind that is one. fix says what to write instead, where there is an error.
func compilePattern(kind ratelimit.MatchKind, text string) (p pattern, fix string, err error) {
	if len(text) > maxPattern {
		return p, fmt.Sprintf("write at most %d bytes", maxPattern), fmt.Errorf("a pattern of %d bytes is too long", len(text))
	}
	p.text = text
	switch kind {
	case ratelimit.MatchPrefix:
		p.prefix = text
	case ratelimit.MatchSuffix:
		p.suffix, p.backward = text, true
	case ratelimit.MatchWildcard:
		w := newWildcard(text)
		p.prefix, p.suffix = w.head, w.tail
		p.backward = p.prefix == "" && p.suffix != ""
		if len(w.middle) > 0 || (p.prefix != "" && p.suffix != "") {
			p.matcher = w
		}
	case ratelimit.MatchGlob:
		g, err := newGlob(text)
		if err != nil {
			return p, "put '**' between slashes, as in /api/**/orders", fmt.Errorf("bad glob %q: %w", text, err)
		}
		p.prefix, p.suffix = g.prefix(), g.suffix()
		if text != "**" {
			p.matcher = g
		}
		p.backward = p.prefix == "" && p.suffix != ""
	case ratelimit.MatchRegex:
		return compileRegex(text)
	case ratelimit.MatchCIDR:
		return compileBlock(text)
	case ratelimit.MatchExact, ratelimit.MatchAny: // no pattern is needed
	}
	return p, "", nil
}

// alone returns a matcher for the values of a definition that is not in a patternSet; nil for any value.
func (p pattern) alone(at *ratelimit.EntryMatch) matcher {
	switch {
	case at.Kind == ratelimit.MatchAny:
		return nil
	case at.Kind == ratelimit.MatchExact:
		return wildcard{head: at.Pattern, whole: true}
	case p.block.IsValid():
		return singleBlock{p.block}
	case p.matcher != nil:
		return p.matcher
	default:
		return wildcard{head: p.prefix, tail: p.suffix}
	}
}

func compileRegex(text string) (p pattern, fix string, err error) {
	const syntaxFix = "write a regular expression in RE2 syntax (no look-around, no back-references)"
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return p, syntaxFix, badRegex(text, err)
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return p, syntaxFix, badRegex(text, err)
	}
	if len(program.Inst) > maxProgram {
		return p, "repeat less, or use prefix or glob", fmt.Errorf("regex %q compiles to %d steps, more than the %d that are allowed", text, len(program.Inst), maxProgram)
	}
	// The parsed form is complete in itself; the text may leave a quotation (\Q) open.
	whole, err := regexp.Compile(`\A(?:` + tree.String() + `)\z`)
	if err != nil {
		return p, syntaxFix, badRegex(text, err)
	}
	p.text, p.matcher = text, regex{whole}
	var prefix strings.Builder
	literalPrefix(tree.Simplify(), &prefix)
	p.prefix = prefix.String()
	return p, "", nil
}

func badRegex(text string, err error) error {
	if fault, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("bad regex %q: %s: %q", text, fault.Code, fault.Expr)
	}
	return fmt.Errorf("bad regex %q: %w", text, err)
}

// regex matches a whole value.
type regex struct{ *regexp.Regexp }

func (r regex) match(value string) bool { return r.MatchString(value) }

// literalPrefix writes the text with which every match of the expression begins, and tells whether that is all of it.
func literalPrefix(tree *syntax.Regexp, to *strings.Builder) bool {
	switch tree.Op {
	case syntax.OpBeginText, syntax.OpEmptyMatch:
		return true
	case syntax.OpLiteral:
		if tree.Flags&syntax.FoldCase != 0 || strings.ContainsRune(string(tree.Rune), '\uFFFD') {
			return false // U+FFFD also matches a byte that is not UTF-8
		}
		to.WriteString(string(tree.Rune))
		return true
	case syntax.OpCapture:
		return literalPrefix(tree.Sub[0], to)
	case syntax.OpConcat:
		for _, sub := range tree.Sub {
			if !literalPrefix(sub, to) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

func compileBlock(text string) (p pattern, fix string, err error) {
	block, err := netip.ParsePrefix(text)
	if err != nil {
		fix = "write an address, a slash and a number of bits, as in 10.0.0.0/8 or 2001:db8::/32"
		if addr, addrErr := netip.ParseAddr(text); addrErr == nil && addr.Zone() == "" {
			fix = fmt.Sprintf("write %s/%d", addr, addr.BitLen())
		}
		return p, fix, fmt.Errorf("bad CIDR block %q", text)
	}
	if addr := block.Addr(); addr.Is4In6() && block.Bits() >= 96 {
		block = netip.PrefixFrom(addr.Unmap(), block.Bits()-96)
	}
	block = block.Masked()
	return pattern{text: block.String(), block: block}, "", nil
}

// Matches tells whether one level of a rule would take a value. It compiles the pattern each time: Table.Match is for
// decisions.
func Matches(m *ratelimit.EntryMatch, value string) bool {
	if m.Kind == ratelimit.MatchAny || m.Kind == ratelimit.MatchExact {
		return m.Kind == ratelimit.MatchAny || m.Pattern == value
	}
	p, _, err := compilePattern(m.Kind, m.Pattern)
	if err != nil {
		return false
	}
	matcher := p.alone(m)
	return matcher == nil || matcher.match(value)
}

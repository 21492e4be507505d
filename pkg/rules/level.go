package rules

import (
	"github.com/weirhq/weir/pkg/ratelimit"
)

// unranked is the rank of no pattern: higher than all.
const unranked = int32(1<<31 - 1)

// node is one compiled definition.
type node struct {
	rule *ratelimit.Rule // nil: no limit at this depth
	next *level          // nil: nothing deeper
	at   *ratelimit.EntryMatch
}

// level holds the definitions that stand side by side.
type level struct {
	keys map[string]*branch
	// ranked holds the patterns in their order of precedence; a rank is an index into it.
	ranked []*node
	// wild are the patterns with a '*' in their key, by rank.
	wild []wildKey
}

// branch holds the definitions with one key.
type branch struct {
	exact    map[string]*node
	patterns *patternSet // nil: none
	any      *node       // nil: none
}

// wildKey is a pattern whose key holds a '*'.
type wildKey struct {
	rank  int32
	key   wildcard
	value matcher // nil: any value
}

// match returns the definition that wins for an entry, or nil.
func (l *level) match(key, value string) *node {
	b := l.keys[key]
	best := unranked
	if b != nil {
		if n := b.exact[value]; n != nil {
			return n
		}
		if b.patterns != nil {
			best = b.patterns.match(value)
		}
	}
	for i := range l.wild {
		w := &l.wild[i]
		if w.rank >= best {
			break
		}
		if w.key.match(key) && (w.value == nil || w.value.match(value)) {
			best = w.rank
			break
		}
	}
	switch {
	case best != unranked:
		return l.ranked[best]
	case b != nil:
		return b.any
	default:
		return nil
	}
}

// patternSet returns the branch's patterns, made if need be.
func (b *branch) patternSet() *patternSet {
	if b.patterns == nil {
		b.patterns = &patternSet{prefixes: newTrie(false), suffixes: newTrie(true)}
	}
	return b.patterns
}

package rules

import "strings"

// trie finds, among texts with which a value begins (or ends), the pattern of the lowest rank. It is a radix tree whose
// nodes carry two sorts of patterns: those that need nothing but their text, and those with a check for the rest.
//
// A walk costs no more than the longest text that is stored, however long the value.
type trie struct {
	backward bool // texts are read from their ends
	root     trieNode
}

type trieNode struct {
	label    string // what the edge to this node reads, in the order of reading
	first    []byte // the first byte of each child's label
	children []*trieNode
	rank     int32   // the lowest of the patterns that end here and need no check
	checks   []check // by rank
}

type check struct {
	rank    int32
	matcher matcher
}

func newTrie(backward bool) trie {
	return trie{backward: backward, root: trieNode{rank: unranked}}
}

// add stores a pattern. Ranks must be added in ascending order. A nil matcher means that the text is the whole pattern.
func (t *trie) add(text string, rank int32, m matcher) {
	if t.backward {
		text = reversed(text)
	}
	n := t.root.descend(text)
	if m == nil {
		n.rank = min(n.rank, rank)
		return
	}
	n.checks = append(n.checks, check{rank, m})
}

// descend returns the node at which text ends, making and splitting nodes on the way.
func (n *trieNode) descend(text string) *trieNode {
	for text != "" {
		i := strings.IndexByte(string(n.first), text[0])
		if i < 0 {
			child := &trieNode{label: text, rank: unranked}
			n.first, n.children = append(n.first, text[0]), append(n.children, child)
			return child
		}
		child := n.children[i]
		common := commonPrefix(child.label, text)
		if common < len(child.label) {
			upper := &trieNode{label: child.label[:common], first: []byte{child.label[common]}, children: []*trieNode{child}, rank: unranked}
			child.label = child.label[common:]
			n.children[i] = upper
			child = upper
		}
		n, text = child, text[common:]
	}
	return n
}

// find returns the lowest rank below best that matches, or best.
func (t *trie) find(value string, best int32) int32 {
	n, rest := &t.root, value
	for {
		best = min(best, n.rank)
		for _, c := range n.checks {
			if c.rank >= best {
				break
			}
			if c.matcher.match(value) {
				best = c.rank
				break
			}
		}
		if n = n.child(&rest, t.backward); n == nil {
			return best
		}
	}
}

// covering returns the lowest rank of the patterns that match everything that begins (ends) with text.
func (t *trie) covering(text string) int32 {
	best := unranked
	for n, rest := &t.root, text; n != nil; n = n.child(&rest, t.backward) {
		best = min(best, n.rank)
	}
	return best
}

// child returns the next node on the way along rest and takes its label off rest, or returns nil.
func (n *trieNode) child(rest *string, backward bool) *trieNode {
	if *rest == "" || len(n.children) == 0 {
		return nil
	}
	b := (*rest)[0]
	if backward {
		b = (*rest)[len(*rest)-1]
	}
	for i, first := range n.first {
		if first != b {
			continue
		}
		child := n.children[i]
		size := len(child.label)
		switch {
		case size > len(*rest):
			return nil
		case !backward:
			if (*rest)[:size] != child.label {
				return nil
			}
			*rest = (*rest)[size:]
		default:
			tail := (*rest)[len(*rest)-size:]
			for j := range size {
				if tail[size-1-j] != child.label[j] {
					return nil
				}
			}
			*rest = (*rest)[:len(*rest)-size]
		}
		return child
	}
	return nil
}

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func reversed(s string) string {
	b := []byte(s)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	return string(b)
}

package respond

import "encoding/base64"

// policies are the limits that a header lists, as indexes in the order of the decision: each name and partition once.
//
// Limits of one rule often share its name. Where they differ in the window, its seconds are added to the name ("api-60"),
// so that a client can tell them apart; where they do not (two descriptors met the same rule), the tightest stands for
// all.
type policies struct {
	index  [MaxPolicies]int
	window [MaxPolicies]bool // add the window to the name
	count  int
}

// all returns the listed indexes.
func (p *policies) all() []int { return p.index[:p.count] }

// same reports whether a client could not tell a from b.
func same(a, b *Limit) bool {
	return a.Name == b.Name && a.Partition == b.Partition && a.windowSeconds() == b.windowSeconds()
}

func listPolicies(d *Decision, tightest int) policies {
	var p policies
	limits, hasTightest := d.Limits[:min(len(d.Limits), maxCompared)], false
	for i := range limits {
		l := &limits[i]
		best, first := i, true
		for j := range limits {
			if other := &limits[j]; j != i && same(l, other) {
				first = first && j > i
				if tighter(other, &limits[best]) {
					best = j
				}
			}
		}
		isTightest := best == tightest || same(l, &d.Limits[tightest])
		if !first || !isTightest && !hasTightest && p.count == MaxPolicies-1 {
			continue // the last place is the tightest one's
		}
		if p.count == MaxPolicies {
			return p
		}
		p.add(limits, best)
		hasTightest = hasTightest || isTightest
	}
	if !hasTightest {
		p.index[p.count] = tightest
		p.count++
	}
	return p
}

// add lists limits[i].
func (p *policies) add(limits []Limit, i int) {
	l := &limits[i]
	p.index[p.count] = i
	for j := range limits {
		if other := &limits[j]; other.Name == l.Name && other.windowSeconds() != l.windowSeconds() {
			p.window[p.count] = true
		}
	}
	p.count++
}

// appendName appends the name of the i-th listed limit.
func (p *policies) appendName(dst []byte, d *Decision, i int) []byte {
	l := &d.Limits[p.index[i]]
	dst = AppendName(dst, l.Name)
	if p.window[i] {
		dst = append(dst, '-')
		dst = appendInteger(dst, l.windowSeconds())
	}
	return dst
}

// appendDraft03 appends a quota policy of draft-polli-ratelimit-headers-03, section 2.2.
func (p *policies) appendDraft03(dst []byte, d *Decision, i int) []byte {
	l := &d.Limits[p.index[i]]
	dst = appendInteger(dst, l.Count)
	dst = append(dst, ";w="...)
	dst = appendInteger(dst, l.windowSeconds())
	if l.Burst > 0 {
		dst = append(dst, ";burst="...)
		dst = appendInteger(dst, l.Burst)
	}
	return dst
}

// writeIETF writes both fields as lists (RFC 9651, section 4.1.1) of strings with parameters.
func (p *policies) writeIETF(w *writer, d *Decision) {
	for i, index := range p.all() {
		l := &d.Limits[index]
		w.buf = p.appendItem(w.buf, d, i)
		w.buf = append(w.buf, ";r="...)
		w.buf = appendInteger(w.buf, l.Remaining)
		w.buf = append(w.buf, ";t="...)
		w.buf = appendInteger(w.buf, l.wait())
		w.buf = appendPartition(w.buf, l)
	}
	w.end("RateLimit")
	for i, index := range p.all() {
		l := &d.Limits[index]
		w.buf = p.appendItem(w.buf, d, i)
		w.buf = append(w.buf, ";q="...)
		w.buf = appendInteger(w.buf, l.Count)
		if l.Unit != "" {
			w.buf = append(w.buf, `;qu="`...)
			w.buf = AppendName(w.buf, l.Unit)
			w.buf = append(w.buf, '"')
		}
		w.buf = append(w.buf, ";w="...)
		w.buf = appendInteger(w.buf, l.windowSeconds())
		if l.Burst > 0 {
			w.buf = append(w.buf, ";weir-burst="...)
			w.buf = appendInteger(w.buf, l.Burst)
		}
		w.buf = appendPartition(w.buf, l)
	}
	w.end("RateLimit-Policy")
}

// appendItem begins the i-th member of a list with its value, the name as a string.
func (p *policies) appendItem(dst []byte, d *Decision, i int) []byte {
	if i > 0 {
		dst = append(dst, ", "...)
	}
	dst = append(dst, '"')
	dst = p.appendName(dst, d, i)
	return append(dst, '"')
}

// appendPartition appends the parameter pk as a byte sequence (RFC 9651, section 4.1.8).
func appendPartition(dst []byte, l *Limit) []byte {
	if l.Partition == "" || len(l.Partition) > MaxPartition {
		return dst
	}
	dst = append(dst, ";pk=:"...)
	var space [MaxPartition]byte
	dst = base64.StdEncoding.AppendEncode(dst, space[:copy(space[:], l.Partition)])
	return append(dst, ':')
}

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
	return sameName(a.Name, b.Name) && a.partition() == b.partition() && a.windowSeconds() == b.windowSeconds()
}

// sameName reports whether two names look the same when written.
func sameName(a, b string) bool {
	if a == b {
		return true
	}
	if a != "" && b != "" && len(a) <= MaxName && len(b) <= MaxName && isPlain(a) && isPlain(b) {
		return false
	}
	return EscapeName(a) == EscapeName(b)
}

// partition is the partition key as a client sees it.
func (l *Limit) partition() string {
	if len(l.Partition) > MaxPartition {
		return ""
	}
	return l.Partition
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
		if other := &limits[j]; other.windowSeconds() != l.windowSeconds() && sameName(other.Name, l.Name) {
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

// appendDraft03 appends what follows the limit in RateLimit-Limit: quota policies as draft-polli-ratelimit-headers-03,
// section 2.2, has them.
func (p *policies) appendDraft03(dst []byte, d *Decision) []byte {
	for _, index := range p.all() {
		dst = appendQuota(dst, &d.Limits[index])
	}
	return dst
}

// appendEnvoy appends the same with the names, as Envoy writes them.
func (p *policies) appendEnvoy(dst []byte, d *Decision) []byte {
	for i, index := range p.all() {
		dst = appendQuota(dst, &d.Limits[index])
		dst = append(dst, `;name="`...)
		dst = p.appendName(dst, d, i)
		dst = append(dst, '"')
	}
	return dst
}

func appendQuota(dst []byte, l *Limit) []byte {
	dst = append(dst, ", "...)
	dst = appendInteger(dst, l.Count)
	dst = append(dst, ";w="...)
	dst = appendInteger(dst, l.windowSeconds())
	if l.Burst > 0 {
		dst = append(dst, ";burst="...)
		dst = appendInteger(dst, l.Burst)
	}
	return dst
}

// appendRateLimit appends the field RateLimit, a list (RFC 9651, section 4.1.1) of strings with parameters.
func (p *policies) appendRateLimit(dst []byte, d *Decision) []byte {
	for i, index := range p.all() {
		l := &d.Limits[index]
		dst = p.appendItem(dst, d, i)
		dst = append(dst, ";r="...)
		dst = appendInteger(dst, l.Remaining)
		dst = append(dst, ";t="...)
		dst = appendInteger(dst, l.wait())
		dst = appendPartition(dst, l)
	}
	return dst
}

// appendRateLimitPolicy appends the field RateLimit-Policy, of the same form.
func (p *policies) appendRateLimitPolicy(dst []byte, d *Decision) []byte {
	for i, index := range p.all() {
		l := &d.Limits[index]
		dst = p.appendItem(dst, d, i)
		dst = append(dst, ";q="...)
		dst = appendInteger(dst, l.Count)
		if l.Unit != "" {
			dst = append(dst, `;qu="`...)
			dst = AppendName(dst, l.Unit)
			dst = append(dst, '"')
		}
		dst = append(dst, ";w="...)
		dst = appendInteger(dst, l.windowSeconds())
		if l.Burst > 0 {
			dst = append(dst, ";weir-burst="...)
			dst = appendInteger(dst, l.Burst)
		}
		dst = appendPartition(dst, l)
	}
	return dst
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
	key := l.partition()
	if key == "" {
		return dst
	}
	dst = append(dst, ";pk=:"...)
	var space [MaxPartition]byte
	dst = base64.StdEncoding.AppendEncode(dst, space[:copy(space[:], key)])
	return append(dst, ':')
}

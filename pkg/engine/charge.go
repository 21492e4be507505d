package engine

import (
	"strconv"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// charge appends what is to be counted for one request.
//
// Each descriptor is a charge of its own. An atomic request, or one with an ID, is one charge, but for descriptors in
// shadow or quota mode: these may be over while the request goes on, and must not keep the others from being counted.
// If an action refuses an atomic request, nothing of it is charged.
func (l *Limiter) charge(b *Batch, request *ratelimit.Request, statuses []Status, plans []plan, refused bool) {
	id := request.ID
	if b.Peek {
		id = ""
	}
	if !request.Atomic && id == "" {
		for i := range plans {
			if plans[i].verdict == count {
				b.open(request, "", 0)
				l.hit(b, request, i, &statuses[i], &plans[i], statuses[i].Cost, false)
			}
		}
		return
	}
	if refused {
		id = ""
	}
	opened := false
	for i := range plans {
		if p := &plans[i]; p.verdict == count && !p.shadow && !p.quota {
			if !opened {
				b.open(request, id, 0)
				opened = true
			}
			l.hit(b, request, i, &statuses[i], p, unlessRefused(statuses[i].Cost, refused), true)
		}
	}
	for i := range plans {
		if p := &plans[i]; p.verdict == count && (p.shadow || p.quota) {
			b.open(request, id, i+1)
			l.hit(b, request, i, &statuses[i], p, unlessRefused(statuses[i].Cost, refused), true)
		}
	}
}

func unlessRefused(cost int64, refused bool) int64 {
	if refused {
		return 0
	}
	return cost
}

// open begins a charge for a request. part tells the charges of one request apart, whose IDs must differ.
func (b *Batch) open(request *ratelimit.Request, id string, part int) {
	charge := ratelimit.Charge{Cancelled: request.Cancelled}
	if id != "" {
		first := len(b.keys)
		b.keys = strconv.AppendInt(b.keys, int64(part), 10)
		b.keys = append(b.keys, ':')
		b.keys = appendLiteral(b.keys, id)
		charge.ID = b.key(first)
	}
	b.charges = append(b.charges, charge)
	b.spans = append(b.spans, span{first: int32(len(b.hits)), end: int32(len(b.hits))})
}

// hit appends the limits of descriptor i to the charge opened last.
func (l *Limiter) hit(b *Batch, request *ratelimit.Request, i int, status *Status, p *plan, cost int64, atomic bool) {
	var levels []ratelimit.EntryMatch
	charge, part := &b.charges[len(b.charges)-1], &b.spans[len(b.spans)-1]
	if rule := status.Rule; rule != nil {
		if !status.Override {
			levels = rule.Match
		}
		if charge.OnFailure == ratelimit.FailureDefault {
			charge.OnFailure = rule.OnFailure
		}
	}
	p.charge, p.first = int32(len(b.charges)-1), int32(len(b.limits))

	base, end := 0, 0 // of the key in weir's own form, without a window
	for j := range p.limits {
		first := len(b.keys)
		switch {
		case p.limits[j].EnvoyKey:
			b.keys = l.appendEnvoyKey(b.keys, request.Domain, request.Descriptors[i].Entries, levels)
		case end == 0:
			b.keys = l.appendBase(b.keys, request.Domain, request.Descriptors[i].Entries, levels)
			base, end = first, len(b.keys)
		default:
			b.keys = append(b.keys, b.keys[base:end]...)
		}
		switch {
		case p.limits[j].EnvoyKey:
		case status.Override:
			b.keys = appendOverrideWindow(b.keys, p.limits, status.Rule)
		default:
			b.keys = appendWindow(b.keys, p.limits, j)
		}
		key := b.key(first)

		at := -1
		if atomic {
			at = find(b.hits[part.first:], key)
		}
		if at < 0 {
			at = len(b.hits) - int(part.first)
			b.hits = append(b.hits, ratelimit.Hit{Key: key, Limit: &p.limits[j], Cost: cost, Partial: !atomic && len(p.limits) == 1})
			part.end++
		} else {
			merge(&b.hits[int(part.first)+at], &p.limits[j], cost)
		}
		b.limits = append(b.limits, LimitResult{Limit: &p.limits[j]})
		b.hitOf = append(b.hitOf, part.first+int32(at))
	}
}

func find(hits []ratelimit.Hit, key string) int {
	for i := range hits {
		if hits[i].Key == key {
			return i
		}
	}
	return -1
}

// merge adds a second hit of an atomic charge to the one that has its key already: two hits of a charge never share a key.
// Where their limits differ (one is an override), the tighter one counts.
func merge(hit *ratelimit.Hit, limit *ratelimit.Limit, cost int64) {
	hit.Cost = min(max(hit.Cost+cost, -ratelimit.MaxCost), ratelimit.MaxCost)
	if limit.Capacity() < hit.Limit.Capacity() {
		hit.Limit = limit
	}
}

package rules

import (
	"fmt"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// defaultLeaseTTL is how long a lease lasts that does not say it.
const defaultLeaseTTL = 200 * time.Millisecond

// lease reads how many hits are taken ahead, and for how long.
func (p *parser) lease(n *yaml.Node) ratelimit.Lease {
	if isNull(n) {
		return ratelimit.Lease{}
	}
	before := p.problems.count()
	l := ratelimit.Lease{TTL: defaultLeaseTTL}
	var most *yaml.Node
	p.mapping(n, "lease", leaseFields, func(name string, value *yaml.Node) {
		switch {
		case isNull(value):
		case name == "max":
			most = value
			l.Max = p.integer(value, "max", 2, ratelimit.MaxLease)
		case name == "ttl":
			text := p.text(value, "ttl")
			ttl, fix := parseWindow(text)
			if fix != "" {
				p.fault(value, "bad ttl "+describe(value), "write a number and ms or s, as in 200ms or 1s")
			} else if ttl < ratelimit.MinLeaseTTL || ttl > ratelimit.MaxLeaseTTL {
				p.fault(value, fmt.Sprintf("a ttl of %s is out of range", text),
					fmt.Sprintf("write %s to %s", formatWindow(ratelimit.MinLeaseTTL), formatWindow(ratelimit.MaxLeaseTTL)))
			}
			l.TTL = ttl
		}
	})
	if most == nil && p.problems.count() == before {
		p.fault(n, "the lease does not say how many", "write max: NUMBER, such as a tenth of the limit")
	}
	if p.problems.count() != before {
		return ratelimit.Lease{}
	}
	return l
}

// placeLease gives a rule's one limit its lease.
func (c *compiler) placeLease(d located, r *ratelimit.Rule) {
	switch {
	case d.Lease == ratelimit.Lease{}:
	case d.Action != ratelimit.ActionLimit || r.Unlimited:
		c.fault(d, "the rule counts nothing, so that there is nothing to take ahead", "remove lease", nil, "lease")
	case len(r.Limits) > 1:
		c.fault(d, fmt.Sprintf("a lease cannot serve %d limits, which are charged together", len(r.Limits)), "keep one limit, or remove lease", nil, "lease")
	case len(r.Limits) == 1:
		r.Limits[0].Lease = d.Lease
	}
}

// checkLease points at what is wrong with a limit only because of its lease.
func (c *compiler) checkLease(d located, err error) {
	message := strings.TrimPrefix(err.Error(), ratelimit.ErrLimit.Error()+": ")
	fix := ""
	if i := strings.LastIndex(message, ": "); i >= 0 {
		message, fix = message[:i], message[i+2:]
	}
	at := []any{"lease"}
	for _, field := range leaseFields {
		if rest, found := strings.CutPrefix(message, "lease."+field+" "); found {
			message, at = field+" "+rest, append(at, field)
			break
		}
	}
	c.fault(d, message, fix, err, at...)
}

package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const day = 24 * time.Hour

// units are envoyproxy/ratelimit's units. A month is 30 days and a year 365 there; neither follows the calendar.
var units = []struct {
	name   string
	length time.Duration
}{
	{"second", time.Second},
	{"minute", time.Minute},
	{"hour", time.Hour},
	{"day", day},
	{"week", 7 * day},
	{"month", 30 * day},
	{"year", 365 * day},
}

func unitLength(name string) (time.Duration, bool) {
	for _, u := range units {
		if strings.EqualFold(u.name, name) {
			return u.length, true
		}
	}
	return 0, false
}

func unitNames() string {
	names := make([]string, len(units))
	for i, u := range units {
		names[i] = u.name
	}
	return strings.Join(names, ", ")
}

// rateLimit turns a limit in envoyproxy/ratelimit's terms into a rule's.
func (c *compiler) rateLimit(d located, r *ratelimit.Rule) {
	shared := d.RateLimit
	c.checkName(d, shared.Name, "name", "rate_limit", "name")
	if shared.Name != "" {
		if d.Name != "" && d.Name != shared.Name {
			c.warn(d, fmt.Sprintf("the descriptor is named %q and its rate_limit %q; the second counts", d.Name, shared.Name), "keep one of them", "name")
		}
		r.Name = shared.Name
	}
	for i, name := range shared.Replaces {
		switch name {
		case "":
			c.fault(d, "replaces holds an empty entry", "write {name: RULE}, or remove the entry", nil, "rate_limit", "replaces", i)
		case shared.Name:
			c.fault(d, fmt.Sprintf("rule %q replaces itself", name), "write another rule's name, or remove the entry", nil, "rate_limit", "replaces", i, "name")
		default:
			c.replacing = append(c.replacing, replacement{by: d, name: name, index: i})
		}
	}
	r.Replaces = slices.Clone(shared.Replaces)
	length, known := unitLength(shared.Unit)
	switch {
	case shared.Unlimited && known:
		c.fault(d, fmt.Sprintf("unlimited comes with the unit %q", shared.Unit), "remove unit, or unlimited", nil, "rate_limit", "unit")
	case shared.Unlimited:
		r.Unlimited = true
		if shared.Unit != "" && !strings.EqualFold(shared.Unit, "unknown") {
			c.warn(d, fmt.Sprintf("unlimited comes with %q, which is no unit", shared.Unit), "remove unit", "rate_limit", "unit")
		}
	case shared.Unit == "":
		c.fault(d, "rate_limit has no unit", "write unit: "+strings.ReplaceAll(unitNames(), ", year", " or year")+", or unlimited: true", nil, "rate_limit")
	case !known:
		c.fault(d, fmt.Sprintf("bad unit %q", shortened(shared.Unit)), suggest(shared.Unit, strings.Split(unitNames(), ", ")), nil, "rate_limit", "unit")
	default:
		multiplier := max(int64(shared.UnitMultiplier), 1)
		if multiplier > int64(ratelimit.MaxWindow/length) {
			c.fault(d, fmt.Sprintf("a window of %d %ss is too long", multiplier, strings.ToLower(shared.Unit)),
				"write a smaller unit_multiplier; the longest window is ten years", nil, "rate_limit", "unit_multiplier")
			return
		}
		limit := ratelimit.Limit{
			Algorithm: ratelimit.FixedWindow,
			Count:     int64(shared.RequestsPerUnit),
			Window:    time.Duration(multiplier * int64(length)),
			Lease:     d.Lease,
			EnvoyKey:  c.opts.EnvoyKeys,
		}
		c.checkLimit(d, &limit, "rate_limit")
		r.Limits = []ratelimit.Limit{limit}
	}
}

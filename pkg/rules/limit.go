package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // a rule's timezone means the same in an image without a zone database

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// limitFieldsOf are the written fields of one limit; nil where there is none.
type limitFieldsOf struct {
	algorithm, limit, window, burst, rate, timezone, kind, name *yaml.Node
}

// set takes a field. It returns false if it is not one of a limit.
func (f *limitFieldsOf) set(name string, value *yaml.Node) bool {
	var field **yaml.Node
	switch name {
	case "algorithm":
		field = &f.algorithm
	case "limit":
		field = &f.limit
	case "window":
		field = &f.window
	case "burst":
		field = &f.burst
	case "rate":
		field = &f.rate
	case "timezone":
		field = &f.timezone
	case "kind":
		field = &f.kind
	case "name":
		field = &f.name
	default:
		return false
	}
	if !isNull(value) {
		*field = value
	}
	return true
}

func (f *limitFieldsOf) any() bool { return *f != limitFieldsOf{} }

// limit reads one limit of our own form. It returns false, and has reported it, where its fields do not make one.
func (p *parser) limit(n *yaml.Node, f *limitFieldsOf) (ratelimit.Limit, bool) {
	before := p.problems.count()
	var l ratelimit.Limit
	if f.name != nil {
		l.Name = p.text(f.name, "name")
	}
	p.amount(n, f, &l)
	if f.burst != nil {
		l.Burst = p.integer(f.burst, "burst", 1, ratelimit.MaxCount)
	}
	if f.kind != nil {
		l.Kind = oneOf(p, f.kind, "kind", kinds)
	}
	calendar := l.Calendar != ratelimit.CalendarNone
	l.Algorithm = ratelimit.TokenBucket
	if calendar {
		l.Algorithm = ratelimit.FixedWindow // nothing else can follow the calendar
	}
	if f.algorithm != nil {
		if algorithm := oneOf(p, f.algorithm, "algorithm", ratelimit.Algorithms()); algorithm != 0 {
			l.Algorithm = algorithm
		}
	}
	if calendar && l.Algorithm != ratelimit.FixedWindow {
		p.fault(f.algorithm, l.Algorithm.String()+" cannot follow the calendar", "write fixed_window, or a window such as 30d")
	}
	if f.timezone != nil {
		p.timezone(f.timezone, &l)
	}
	return l, p.problems.count() == before
}

// amount reads how many in which time: limit and window, or rate.
func (p *parser) amount(n *yaml.Node, f *limitFieldsOf, l *ratelimit.Limit) {
	if f.rate != nil {
		for _, other := range []*yaml.Node{f.limit, f.window} {
			if other != nil {
				p.fault(other, "rate already says how many in which time", "keep rate, or limit and window")
			}
		}
		count, window, fix := parseRate(p.text(f.rate, "rate"))
		if fix != "" {
			p.fault(f.rate, "bad rate "+describe(f.rate), fix)
		}
		l.Count, l.Window = count, window
		return
	}
	if f.limit == nil {
		p.fault(n, "the limit does not say how many", "write limit: NUMBER and window: TIME, or rate: NUMBER/TIME")
	} else {
		l.Count = p.integer(f.limit, "limit", 0, ratelimit.MaxCount)
	}
	if f.window == nil {
		if f.limit != nil {
			p.fault(n, "the limit has no window", "write window: TIME, such as 60s, 1h, 1d or month")
		}
		return
	}
	text := p.text(f.window, "window")
	switch text {
	case "month":
		l.Calendar = ratelimit.CalendarMonth
	case "year":
		l.Calendar = ratelimit.CalendarYear
	default:
		window, fix := parseWindow(text)
		if fix != "" {
			p.fault(f.window, "bad window "+describe(f.window), fix)
		}
		l.Window = window
	}
}

func (p *parser) timezone(n *yaml.Node, l *ratelimit.Limit) {
	name := p.text(n, "timezone")
	if l.Calendar == ratelimit.CalendarNone {
		p.fault(n, "a timezone counts for the calendar's windows only", "write window: month or year, or remove timezone")
		return
	}
	// "Local" is another place on every machine.
	location, err := time.LoadLocation(name)
	if err != nil || name == "Local" || name == "" {
		p.fault(n, fmt.Sprintf("unknown timezone %q", shortened(name)), "write a name of the IANA database, such as Europe/Berlin or Asia/Tokyo")
		return
	}
	l.Location = location
}

const windowFix = "write a number and ms, s, m, h, d or w, as in 250ms, 60s or 1d, or month or year"

// parseWindow reads a length such as 250ms, 90s, 1h30m, 1d or 1w. fix says what to write instead, where text is none.
func parseWindow(text string) (window time.Duration, fix string) {
	if _, err := strconv.Atoi(text); err == nil {
		return 0, "write " + text + "s if these are seconds"
	}
	if length, ok := unitLength(text); ok {
		return 0, "write " + formatWindow(length)
	}
	rest := text
	for rest != "" {
		digits := strings.TrimLeft(rest, "0123456789.")
		number, unit := rest[:len(rest)-len(digits)], digits
		if i := strings.IndexAny(digits, "0123456789."); i >= 0 {
			unit = digits[:i]
		}
		rest = digits[len(unit):]
		part, ok := windowPart(number, unit)
		if !ok || part > math.MaxInt64-window {
			return 0, windowFix
		}
		window += part
	}
	if window <= 0 {
		return 0, windowFix
	}
	return window, ""
}

// windowPart reads one number with its unit.
func windowPart(number, unit string) (time.Duration, bool) {
	length := map[string]time.Duration{"d": day, "w": 7 * day}[unit]
	if length != 0 {
		count, err := strconv.ParseInt(number, 10, 64)
		if err != nil || count > int64(math.MaxInt64/length) {
			return 0, false
		}
		return time.Duration(count) * length, true
	}
	switch unit {
	case "ms", "s", "m", "h":
		part, err := time.ParseDuration(number + unit)
		return part, err == nil
	default:
		return 0, false
	}
}

// formatWindow writes a length in its largest whole unit.
func formatWindow(window time.Duration) string {
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{7 * day, "w"}, {day, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if window >= u.length && window%u.length == 0 {
			return strconv.FormatInt(int64(window/u.length), 10) + u.name
		}
	}
	return window.String()
}

// parseRate reads COUNT/TIME, such as 10/s, 600/m or 5/250ms.
func parseRate(text string) (count int64, window time.Duration, fix string) {
	const rateFix = "write a number, a slash and a time, as in 10/s, 600/m or 100/5m"
	number, length, found := strings.Cut(text, "/")
	count, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if !found || err != nil || count < 0 {
		return 0, 0, rateFix
	}
	length = strings.TrimSpace(length)
	if unit, ok := unitLength(length); ok {
		return count, unit, ""
	}
	if length != "" && !strings.ContainsAny(length[:1], "0123456789") {
		length = "1" + length
	}
	if window, fix = parseWindow(length); fix != "" {
		return 0, 0, rateFix
	}
	return count, window, ""
}

// ParseWindow reads a window as rule files have it, such as 250ms, 60s, 1h30m, 1d or 1w. The calendar's windows, month and
// year, are none.
func ParseWindow(text string) (time.Duration, error) {
	window, fix := parseWindow(text)
	if fix != "" {
		return 0, fmt.Errorf("%q is no window: %s", shortened(text), strings.TrimSuffix(fix, ", or month or year"))
	}
	return window, nil
}

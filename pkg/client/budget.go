package client

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// budget is what a response says about the limit that binds its client most.
type budget struct {
	remaining int64
	reset     time.Duration // until when no more than remaining is there
	// quota per window, 0 where it is not known.
	quota  int64
	window time.Duration
}

const (
	// maxFieldBytes bounds what is parsed of one header field.
	maxFieldBytes = 8 << 10
	// maxDelay bounds every duration that a server names; it is longer than anybody waits.
	maxDelay = 366 * 24 * time.Hour
	// epochFrom is the smallest X-RateLimit-Reset that is taken for seconds since the epoch rather than from now, and
	// epochMillisFrom for milliseconds: moments in 1985 and 1973, or 15 and 3,000 years from now.
	epochFrom, epochMillisFrom = 500_000_000, 100_000_000_000
)

// parseBudget reads a response's limit headers: RateLimit and RateLimit-Policy as the current IETF draft or its seventh
// version has them, else RateLimit-Limit and its siblings of draft 03, else X-RateLimit-*. It reports false if there are
// none that can be understood. What a hostile server sends changes nothing but the numbers, and these are bounded.
func parseBudget(header http.Header, now time.Time) (budget, bool) {
	if b, ok := parseList(header); ok {
		return b, true
	}
	if b, ok := parseDictionary(header); ok {
		return b, true
	}
	if b, ok := parseSeparate(header, "Ratelimit-", now); ok {
		return b, true
	}
	return parseSeparate(header, "X-Ratelimit-", now)
}

// pressure is the time between two requests that spend what remains until the reset evenly.
func (b *budget) pressure() time.Duration {
	if b.remaining <= 0 {
		return maxDelay + b.reset
	}
	return b.reset / time.Duration(b.remaining)
}

// parseList reads RateLimit: "name";r=5;t=30, with the quotas of RateLimit-Policy: "name";q=100;w=60. Of several limits the
// one with the greatest pressure is returned.
func parseList(header http.Header) (tightest budget, ok bool) {
	limits, err := list(header, "Ratelimit")
	if err != nil {
		return budget{}, false
	}
	policies, err := list(header, "Ratelimit-Policy")
	if err != nil {
		policies = nil
	}
	for _, member := range limits {
		item, isItem := member.(httpsfv.Item)
		if !isItem {
			continue
		}
		remaining, hasRemaining := parameter(item, "r")
		if !hasRemaining {
			continue
		}
		b := budget{remaining: remaining}
		if reset, has := parameter(item, "t"); has {
			b.reset = seconds(reset)
		}
		for _, member := range policies {
			if policy, isItem := member.(httpsfv.Item); isItem && policy.Value == item.Value {
				b.quota, _ = parameter(policy, "q")
				window, _ := parameter(policy, "w")
				b.window = seconds(window)
				break
			}
		}
		if b.reset == 0 && b.remaining == 0 {
			b.reset = b.window // t is optional: the window is the longest that it can take
		}
		if !ok || b.pressure() > tightest.pressure() {
			tightest, ok = b, true
		}
	}
	return tightest, ok
}

// list reads a header field that is a list of items whose values are strings or tokens.
func list(header http.Header, name string) (httpsfv.List, error) {
	values := header[name]
	size := 0
	for _, value := range values {
		size += len(value)
	}
	if len(values) == 0 || size > maxFieldBytes {
		return nil, httpsfv.ErrInvalidListFormat
	}
	members, err := httpsfv.UnmarshalList(values)
	if err != nil {
		return nil, err
	}
	items := members[:0]
	for _, member := range members {
		if item, ok := member.(httpsfv.Item); ok {
			switch item.Value.(type) {
			case string, httpsfv.Token: // others are of no version of the draft, and may not be comparable
				items = append(items, member)
			}
		}
	}
	return items, nil
}

// parameter returns an integer that is not negative.
func parameter(item httpsfv.Item, name string) (int64, bool) {
	if item.Params == nil {
		return 0, false
	}
	value, ok := item.Params.Get(name)
	if !ok {
		return 0, false
	}
	n, ok := value.(int64)
	return n, ok && n >= 0
}

// parseDictionary reads RateLimit: limit=100, remaining=50, reset=5 (draft 07).
func parseDictionary(header http.Header) (budget, bool) {
	values := header["Ratelimit"]
	if len(values) != 1 || len(values[0]) > maxFieldBytes {
		return budget{}, false
	}
	dictionary, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return budget{}, false
	}
	number := func(name string) (int64, bool) {
		member, ok := dictionary.Get(name)
		if !ok {
			return 0, false
		}
		item, ok := member.(httpsfv.Item)
		if !ok {
			return 0, false
		}
		n, ok := item.Value.(int64)
		return n, ok && n >= 0
	}
	remaining, ok := number("remaining")
	reset, hasReset := number("reset")
	if !ok || !hasReset {
		return budget{}, false
	}
	b := budget{remaining: remaining, reset: seconds(reset)}
	b.quota, _ = number("limit")
	return b, true
}

// parseSeparate reads PREFIXLimit (a number, in draft 03 followed by policies), PREFIXRemaining and PREFIXReset (seconds, from
// now or since the epoch: services differ).
func parseSeparate(header http.Header, prefix string, now time.Time) (budget, bool) {
	remaining, ok := number(header.Get(prefix + "Remaining"))
	reset, hasReset := number(header.Get(prefix + "Reset"))
	if !ok || !hasReset {
		return budget{}, false
	}
	b := budget{remaining: remaining}
	switch {
	case reset >= epochMillisFrom:
		b.reset = until(time.UnixMilli(reset), header, now)
	case reset >= epochFrom:
		b.reset = until(time.Unix(reset, 0), header, now)
	default:
		b.reset = seconds(reset)
	}
	first, policies, _ := strings.Cut(header.Get(prefix+"Limit"), ",")
	b.quota, _ = number(first)
	if _, window, found := strings.Cut(policies, ";w="); found && len(policies) <= maxFieldBytes {
		digits := strings.IndexFunc(window, func(c rune) bool { return c < '0' || c > '9' })
		if digits >= 0 {
			window = window[:digits]
		}
		w, _ := number(window)
		b.window = seconds(w)
	}
	return b, true
}

// number reads a decimal number that is not negative. Some services write fractions, which are cut off.
func number(text string) (int64, bool) {
	text = strings.TrimSpace(text)
	if len(text) == 0 || len(text) > 20 || text[0] < '0' || text[0] > '9' {
		return 0, false
	}
	if whole, fraction, has := strings.Cut(text, "."); has && strings.Trim(fraction, "0123456789") == "" {
		text = whole
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// seconds is n seconds, bounded.
func seconds(n int64) time.Duration {
	return time.Duration(min(n, int64(maxDelay/time.Second))) * time.Second
}

// until is the time from a response to a moment that it names. If it says what time it is at the server, the clocks need not
// agree.
func until(moment time.Time, header http.Header, now time.Time) time.Duration {
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(moment.Sub(now), 0), maxDelay)
}

// parseRetryAfter reads Retry-After: seconds or a date (RFC 9110, section 10.2.3). It reports false if there is none.
func parseRetryAfter(header http.Header, now time.Time) (time.Duration, bool) {
	text := strings.TrimSpace(header.Get("Retry-After"))
	if text == "" || len(text) > 64 {
		return 0, false
	}
	if strings.Trim(text, "0123456789") == "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			n = math.MaxInt64
		}
		return seconds(n), true
	}
	if n, ok := number(text); ok {
		return seconds(n + 1), true // a fraction: round up
	}
	moment, err := http.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return until(moment, header, now), true
}

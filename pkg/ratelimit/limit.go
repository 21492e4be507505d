package ratelimit

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// Calendar makes a fixed window follow the calendar instead of a fixed length.
type Calendar uint8

// The calendar windows.
const (
	CalendarNone  Calendar = iota // Window is the length
	CalendarMonth                 // from the first of a month to the first of the next
	CalendarYear                  // from the first of January to the next
)

// Kind tells what a limit is for, so that a client can be told the right thing.
type Kind uint8

// The kinds.
const (
	Protection Kind = iota // over it: 429, try again later
	Quota                  // a budget; over it: 402 unless configured otherwise
)

// String returns "protection" or "quota".
func (k Kind) String() string {
	if k == Quota {
		return "quota"
	}
	return "protection"
}

const (
	// MaxCount is the largest Count and Burst. It leaves room for sums of counts and costs in an int64 and in a Lua number.
	MaxCount = 1 << 40
	// MaxLogCount is the largest Count of SlidingLog, which remembers every hit.
	MaxLogCount = 10_000
	// MaxWindow is the longest window, ten years.
	MaxWindow = 10 * 366 * 24 * time.Hour
	// MinWindow is the shortest window.
	MinWindow = time.Millisecond
	// MaxCost is the largest cost, either way, that a request may have; transports clamp to it.
	MaxCost = 1 << 40

	// maxParts bounds a bucket's level, counted in parts of a token: the integers that a Lua number holds exactly.
	maxParts = 1 << 53
	// minExact is the coarsest rate that Check accepts for a bucket when the exact one does not fit: one part in 1,000.
	minExact = 1000
)

// ErrLimit is wrapped by every error of Limit.Check.
var ErrLimit = errors.New("invalid limit")

// Limit allows Count per Window, at most Burst at once. The zero value is invalid; call Check once before use, after
// which the limit must not change and is safe for concurrent use.
type Limit struct {
	Name      string // shown to clients; empty: the rule's name is
	Algorithm Algorithm
	Count     int64 // 0 denies everything
	// Burst is the size of a bucket. 0 means Count for TokenBucket and 1 for LeakyBucket; the others must not have one.
	Burst    int64
	Window   time.Duration  // whole microseconds; for a Calendar its nominal length (30 or 365 days), set by Check
	Calendar Calendar       // FixedWindow only
	Location *time.Location // of the calendar; nil: UTC
	Kind     Kind
	Lease    Lease
	// EnvoyKey counts a FixedWindow of whole seconds where, and in the form in which, envoyproxy/ratelimit counts it, so that
	// its replicas and weir's share one count in Redis. Hits have its key then, without the start of the window at its end.
	EnvoyKey bool

	token, perMicro int64 // see Rate; set by Check
	reserve         int64 // of Burst, for leases; set by Check
}

// Check reports what is wrong with l, and computes what follows from its fields. The error wraps ErrLimit and says what
// to write instead.
func (l *Limit) Check() error {
	fault := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrLimit}, args...)...)
	}
	switch l.Calendar {
	case CalendarNone:
	case CalendarMonth:
		l.Window = 30 * 24 * time.Hour
	case CalendarYear:
		l.Window = 365 * 24 * time.Hour
	}
	switch {
	case l.Algorithm == 0 || int(l.Algorithm) >= len(algorithmNames):
		return fault("no algorithm: set one of %v", Algorithms())
	case l.Calendar != CalendarNone && l.Algorithm != FixedWindow:
		return fault("%s cannot follow the calendar: use fixed_window, or a window such as 720h", l.Algorithm)
	case l.Count < 0 || l.Count > MaxCount:
		return fault("limit %d is out of range: write 0 to %d", l.Count, int64(MaxCount))
	case l.Burst < 0 || l.Burst > MaxCount:
		return fault("burst %d is out of range: write 1 to %d", l.Burst, int64(MaxCount))
	case l.Window < MinWindow || l.Window > MaxWindow:
		return fault("window %v is out of range: write %v to %v", l.Window, MinWindow, MaxWindow)
	case l.Window%time.Microsecond != 0:
		return fault("window %v is finer than a microsecond: round it", l.Window)
	case l.EnvoyKey && (l.Algorithm != FixedWindow || l.Calendar != CalendarNone || l.Window%time.Second != 0):
		return fault("envoyproxy/ratelimit counts fixed windows of whole seconds alone: use one, or weir's own keys")
	case l.EnvoyKey && l.Lease != Lease{}:
		return fault("a window that is counted together with envoyproxy/ratelimit cannot have a lease: remove it, or write the rule's limits in weir's own form")
	case l.Algorithm == SlidingLog && l.Count > MaxLogCount:
		return fault("limit %d is above what sliding_log can hold (%d): use sliding_window", l.Count, MaxLogCount)
	}
	switch l.Algorithm {
	case TokenBucket:
		if l.Burst == 0 {
			l.Burst = l.Count
		}
	case LeakyBucket:
		if l.Burst == 0 {
			l.Burst = 1
		}
	default:
		if l.Burst != 0 {
			return fault("burst has no meaning for %s: leave it out, or use token_bucket", l.Algorithm)
		}
	}
	if err := l.lease(fault); err != nil || l.Algorithm != TokenBucket && l.Algorithm != LeakyBucket {
		return err
	}
	if l.Count == 0 {
		l.token, l.perMicro = 1, 0
		return nil
	}
	micros := l.Window.Microseconds()
	divisor := gcd(l.Count, micros)
	token, perMicro := micros/divisor, l.Count/divisor
	if hi, parts := bits.Mul64(uint64(l.Burst), uint64(token)); hi != 0 || parts > maxParts {
		// The exact fraction does not fit: take the nearest one below it, so that the error is never in the client's favour.
		coarse := int64(maxParts) / l.Burst
		hi, lo := bits.Mul64(uint64(perMicro), uint64(coarse))
		if hi >= uint64(token) {
			return fault("a %s of %d per %v with burst %d cannot be counted exactly: use a smaller burst, a shorter window or fixed_window",
				l.Algorithm, l.Count, l.Window, l.Burst)
		}
		rate, _ := bits.Div64(hi, lo, uint64(token))
		if rate < minExact {
			return fault("a %s of %d per %v with burst %d cannot be counted to one part in %d: use a smaller burst, a shorter window or fixed_window",
				l.Algorithm, l.Count, l.Window, l.Burst, minExact)
		}
		token, perMicro = coarse, int64(rate)
	}
	l.token, l.perMicro = token, perMicro
	return nil
}

// Rate returns a bucket's speed in integers: a token is made of token parts, and perMicro parts are added each
// microsecond. Capacity()*token is at most 2^53, so levels counted in parts are exact in Go and in Lua alike. Both are 0
// for the algorithms that have no bucket, and before Check.
func (l *Limit) Rate() (token, perMicro int64) { return l.token, l.perMicro }

// Capacity is the most that a key never seen before allows at once. A bucket with leases allows less than its burst, by what
// flows in while a lease lasts, so that it allows no more than its burst however late leased hits are spent.
func (l *Limit) Capacity() int64 {
	switch l.Algorithm {
	case TokenBucket, LeakyBucket:
		if l.Count == 0 {
			return 0
		}
		return l.Burst - l.reserve
	default:
		return l.Count
	}
}

// Bounds returns the fixed window in which now lies, as microseconds since the Unix epoch: start is in it, end is not.
func (l *Limit) Bounds(now int64) (start, end int64) {
	if l.Calendar == CalendarNone {
		micros := l.Window.Microseconds()
		start = now - now%micros
		if now%micros < 0 {
			start -= micros
		}
		return start, start + micros
	}
	location := l.Location
	if location == nil {
		location = time.UTC
	}
	year, month, _ := time.UnixMicro(now).In(location).Date()
	first, next := time.Date(year, month, 1, 0, 0, 0, 0, location), time.Date(year, month+1, 1, 0, 0, 0, 0, location)
	if l.Calendar == CalendarYear {
		first, next = time.Date(year, 1, 1, 0, 0, 0, 0, location), time.Date(year+1, 1, 1, 0, 0, 0, 0, location)
	}
	return first.UnixMicro(), next.UnixMicro()
}

// WindowName is the last part of a counter's key: the window in seconds ("60", "0.25"), or "month" or "year".
func (l *Limit) WindowName() string {
	switch l.Calendar {
	case CalendarMonth:
		return "month"
	case CalendarYear:
		return "year"
	default:
		return strconv.FormatFloat(l.Window.Seconds(), 'f', -1, 64)
	}
}

// String says what the limit allows, for people: "100 per 1m, token_bucket, burst 150".
func (l *Limit) String() string {
	text := strconv.FormatInt(l.Count, 10) + " per " + l.Per() + ", " + l.Algorithm.String()
	if l.Burst > 0 {
		text += ", burst " + strconv.FormatInt(l.Burst, 10)
	}
	if l.Kind == Quota {
		text += ", quota"
	}
	if l.Lease != (Lease{}) {
		text += ", " + l.Lease.String()
	}
	return text
}

// Per is the window as people write it: "1m", "250ms", "month".
func (l *Limit) Per() string {
	if l.Calendar != CalendarNone {
		return l.WindowName()
	}
	text := l.Window.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

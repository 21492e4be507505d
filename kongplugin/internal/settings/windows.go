package settings

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/schema"
	"github.com/weirhq/weir/pkg/ratelimit"
)

type period struct {
	name     string
	count    int64
	window   time.Duration
	calendar ratelimit.Calendar
}

func (s *Settings) periods() []period {
	const day = 24 * time.Hour
	return []period{
		{"second", s.Second, time.Second, ratelimit.CalendarNone},
		{"minute", s.Minute, time.Minute, ratelimit.CalendarNone},
		{"hour", s.Hour, time.Hour, ratelimit.CalendarNone},
		{"day", s.Day, day, ratelimit.CalendarNone},
		{"month", s.Month, 30 * day, ratelimit.CalendarMonth},
		{"year", s.Year, 365 * day, ratelimit.CalendarYear},
	}
}

func (s *Settings) hasPeriods() bool {
	for _, p := range s.periods() {
		if p.count > 0 {
			return true
		}
	}
	return false
}

// Windows are the limits of a simple config, checked; nil if it has none. Fixed months and years follow the calendar in UTC,
// as Kong's own do; sliding ones and buckets have 30 and 365 days.
func (s *Settings) Windows() ([]ratelimit.Limit, error) {
	algorithm := map[string]ratelimit.Algorithm{
		"fixed": ratelimit.FixedWindow, "sliding": ratelimit.SlidingWindow, "token_bucket": ratelimit.TokenBucket,
	}[s.WindowType]
	var limits []ratelimit.Limit
	add := func(l ratelimit.Limit) error {
		l.Algorithm = algorithm
		if err := l.Check(); err != nil {
			return fmt.Errorf("%w: %s: %w", schema.ErrConfig, l.Name, err)
		}
		limits = append(limits, l)
		return nil
	}
	for _, p := range s.periods() {
		if p.count == 0 {
			continue
		}
		l := ratelimit.Limit{Name: p.name, Count: p.count, Window: p.window}
		if algorithm == ratelimit.FixedWindow {
			l.Calendar = p.calendar
		}
		if err := add(l); err != nil {
			return nil, err
		}
	}
	if len(limits) > 0 && len(s.Limit)+len(s.WindowSize) > 0 {
		return nil, fmt.Errorf("%w: second to year and limit with window_size are two ways to say the same: keep one", schema.ErrConfig)
	}
	if len(s.Limit) != len(s.WindowSize) {
		return nil, fmt.Errorf("%w: %d limits and %d window sizes: write one window_size for each limit",
			schema.ErrConfig, len(s.Limit), len(s.WindowSize))
	}
	for i, seconds := range s.WindowSize {
		if slices.Contains(s.WindowSize[:i], seconds) {
			return nil, fmt.Errorf("%w: window_size: %d stands there twice: keep the smaller limit", schema.ErrConfig, seconds)
		}
		l := ratelimit.Limit{Name: strconv.FormatInt(seconds, 10) + "s", Count: s.Limit[i], Window: time.Duration(seconds) * time.Second}
		if err := add(l); err != nil {
			return nil, err
		}
	}
	return limits, nil
}

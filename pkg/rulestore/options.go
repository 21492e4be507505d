package rulestore

import (
	"fmt"
	"log/slog"
	"time"
)

const (
	defaultTimeout      = 5 * time.Second
	defaultLoadTimeout  = 30 * time.Second
	defaultPollInterval = time.Second
)

// Options are what both databases share. The zero value is usable.
type Options struct {
	// Timeout bounds each call but All and Apply. Defaults to 5 s.
	Timeout time.Duration
	// LoadTimeout bounds All and Apply. Defaults to 30 s.
	LoadTimeout time.Duration
	// PollInterval is the time between two looks at the revision by Watch, give or take a fifth. Defaults to 1 s.
	PollInterval time.Duration
	// Now is the clock of CreatedAt, UpdatedAt and the audit table. Defaults to time.Now.
	Now func() time.Time
	// Looked is told what came of each look at the revision by Watch: nil, or why the database did not answer. nil: nobody is.
	Looked func(error)
	// Logger hears of migrations, and of notifications lost and found again. Defaults to slog.Default().
	Logger *slog.Logger
}

func (o *Options) complete() error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		by    time.Duration
	}{
		{"timeout", &o.Timeout, defaultTimeout},
		{"load timeout", &o.LoadTimeout, defaultLoadTimeout},
		{"poll interval", &o.PollInterval, defaultPollInterval},
	} {
		if *d.value < 0 {
			return fmt.Errorf("%w: rule store: %s %v is negative: write a positive duration, or 0 for %v", ErrInvalid, d.name, *d.value, d.by)
		}
		if *d.value == 0 {
			*d.value = d.by
		}
	}
	if o.Looked == nil {
		o.Looked = func(error) {}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return nil
}

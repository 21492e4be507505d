package respond

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrOptions is wrapped by every error of New.
var ErrOptions = errors.New("invalid response header settings")

// ResetForm is how X-RateLimit-Reset of the style XRateLimit is written.
type ResetForm uint8

// The forms.
const (
	ResetUnix  ResetForm = iota // seconds since the Unix epoch
	ResetDelta                  // seconds from now
)

// Options choose what a Formatter writes. The zero value writes Retry-After on denials and nothing else.
type Options struct {
	Styles Style
	Reset  ResetForm
	// Names are those of the style Custom. An empty one is not written; all empty are an error with that style, any set are
	// an error without it.
	Names Names
	// NoRetryAfter leaves Retry-After out, where the gateway writes its own.
	NoRetryAfter bool
}

// Names are header names for one limit's three numbers.
type Names struct{ Limit, Remaining, Reset string }

// Formatter writes header fields. It is immutable and safe for concurrent use; the zero value is that of zero Options.
type Formatter struct{ options Options }

// New returns a Formatter. The error wraps ErrOptions and names the header name that cannot be used.
func New(options Options) (*Formatter, error) {
	if options.Styles&Custom == 0 {
		if options.Names != (Names{}) {
			return nil, fmt.Errorf("%w: header names are set without the style custom: add it to the styles", ErrOptions)
		}
		return &Formatter{options}, nil
	}
	var used []string
	for _, name := range []string{options.Names.Limit, options.Names.Remaining, options.Names.Reset} {
		if name == "" {
			continue
		}
		if err := checkHeaderName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrOptions, err)
		}
		lower := strings.ToLower(name)
		if slices.Contains(used, lower) {
			return nil, fmt.Errorf("%w: the header %q is named twice: give each number its own", ErrOptions, name)
		}
		used = append(used, lower)
	}
	if len(used) == 0 {
		return nil, fmt.Errorf("%w: the style custom has no header names: set at least one", ErrOptions)
	}
	return &Formatter{options}, nil
}

const maxHeaderName = 64

// reservedHeaders carry a message's framing, routing or type: a number written there would break the response.
var reservedHeaders = []string{
	"connection", "content-encoding", "content-length", "content-type", "date", "host", "keep-alive", "location", "retry-after",
	"set-cookie", "te", "trailer", "transfer-encoding", "upgrade",
}

func checkHeaderName(name string) error {
	switch {
	case len(name) > maxHeaderName:
		return fmt.Errorf("a header name of %d bytes is too long: use at most %d", len(name), maxHeaderName)
	case !isToken(name):
		return fmt.Errorf("%q is no header name: use letters, digits and hyphens", name)
	case slices.Contains(reservedHeaders, strings.ToLower(name)):
		return fmt.Errorf("the header %q has another meaning: use a name such as RateLimit-Limit", name)
	}
	return nil
}

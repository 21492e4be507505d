package rulestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// DefaultDomain is the domain of a rule that names none.
const DefaultDomain = "k1s0"

// The longest texts, in bytes.
const (
	MaxNameLength    = 256
	MaxDomainLength  = 256
	MaxScopeLength   = 128
	MaxPatternLength = 1024
)

// MaxWindowSeconds is the longest window.
const MaxWindowSeconds = int64(ratelimit.MaxWindow / time.Second)

// Rule is one rule made through the API: Limit requests per WindowSeconds for the identifiers of a scope that match a
// pattern. Domain, Scope and IdentifierPattern together are its match; no two rules have the same.
type Rule struct {
	// ID is a UUID in its usual form of 36 characters. Empty on creation: a new one, later than all before it.
	ID                string
	Domain            string // empty: DefaultDomain
	Scope             string
	IdentifierPattern string // "*", an exact value or a wildcard
	Enabled           bool

	Name          string // for people; may be empty
	Limit         int64  // 1 to ratelimit.MaxCount
	WindowSeconds int64  // 1 to MaxWindowSeconds
	Algorithm     ratelimit.Algorithm
	Burst         int64 // as ratelimit.Limit.Burst: 0 is the algorithm's default

	// The rest is set by the store. Times are in UTC and whole milliseconds; Version is 1 on creation and grows by one with
	// every update.
	CreatedAt, UpdatedAt time.Time
	Version              int64
}

// Validate reports everything that keeps the rule from being stored, each joined error naming the field as the API spells
// it. The error wraps ErrInvalid.
func (r *Rule) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if _, err := canonicalID(r.ID); r.ID != "" && err != nil {
		faults = append(faults, err)
	}
	text := func(field, value string, longest int, required bool) {
		if err := checkText(field, value, longest); err != nil {
			faults = append(faults, err)
		} else if required && value == "" {
			fault("%s is empty: write one", field)
		}
	}
	text("domain", r.Domain, MaxDomainLength, false)
	text("scope", r.Scope, MaxScopeLength, true)
	text("identifier_pattern", r.IdentifierPattern, MaxPatternLength, true)
	text("name", r.Name, MaxNameLength, false)

	inRange := true
	if r.Limit < 1 || r.Limit > ratelimit.MaxCount {
		inRange = false
		fault("limit %d is out of range: write 1 to %d", r.Limit, int64(ratelimit.MaxCount))
	}
	if r.WindowSeconds < 1 || r.WindowSeconds > MaxWindowSeconds {
		inRange = false
		fault("window_seconds %d is out of range: write 1 to %d", r.WindowSeconds, MaxWindowSeconds)
	}
	if inRange {
		limit := ratelimit.Limit{
			Algorithm: r.Algorithm,
			Count:     r.Limit,
			Burst:     r.Burst,
			Window:    time.Duration(r.WindowSeconds) * time.Second,
		}
		if err := limit.Check(); err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(faults...))
}

// match is how messages call what a rule applies to: "k1s0 user:*", quoted.
func (r *Rule) match() string { return fmt.Sprintf("%q", r.Domain+" "+r.Scope+":"+r.IdentifierPattern) }

// checkText refuses what one of the databases could not hold or what would garble a log line or a terminal.
func checkText(field, value string, longest int) error {
	switch {
	case len(value) > longest:
		return fmt.Errorf("%s is %d bytes long: write at most %d", field, len(value), longest)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s %q is not UTF-8: encode it", field, value)
	case strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Errorf("%s %q holds a control character: leave it out", field, value)
	}
	return nil
}

func storable(value string, longest int) bool { return checkText("", value, longest) == nil }

// canonicalID returns a UUID in lower case.
func canonicalID(id string) (string, error) {
	const length = 36 // uuid.Parse also reads forms with braces, with a prefix, and without hyphens
	parsed, err := uuid.Parse(id)
	if err != nil || len(id) != length {
		return "", fmt.Errorf("id %.64q is no UUID: write one such as %q", id, "018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d")
	}
	return parsed.String(), nil
}

// body is the part of a rule that is stored as JSON.
type body struct {
	Name          string `json:"name,omitempty"`
	Limit         int64  `json:"limit"`
	WindowSeconds int64  `json:"window_seconds"`
	Algorithm     string `json:"algorithm"`
	Burst         int64  `json:"burst,omitempty"`
}

func (r *Rule) body() body {
	return body{Name: r.Name, Limit: r.Limit, WindowSeconds: r.WindowSeconds, Algorithm: r.Algorithm.String(), Burst: r.Burst}
}

// setBody reads what is stored. Fields that a newer version has added are left out.
func (r *Rule) setBody(stored []byte) error {
	var b body
	if err := json.Unmarshal(stored, &b); err != nil {
		return err
	}
	algorithm, err := ratelimit.ParseAlgorithm(b.Algorithm)
	if err != nil {
		return err
	}
	r.Name, r.Limit, r.WindowSeconds, r.Algorithm, r.Burst = b.Name, b.Limit, b.WindowSeconds, algorithm, b.Burst
	return r.Validate()
}

// document is a whole rule as the audit table keeps it, with the names of the API.
type document struct {
	ID                string `json:"id"`
	Domain            string `json:"domain"`
	Scope             string `json:"scope"`
	IdentifierPattern string `json:"identifier_pattern"`
	Enabled           bool   `json:"enabled"`
	body
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
	Version   int64  `json:"version"`
}

// documentTime is RFC 3339 in UTC with milliseconds.
const documentTime = "2006-01-02T15:04:05.000Z"

func (r *Rule) document() document {
	return document{
		ID: r.ID, Domain: r.Domain, Scope: r.Scope, IdentifierPattern: r.IdentifierPattern, Enabled: r.Enabled,
		body:      r.body(),
		CreatedAt: r.CreatedAt.UTC().Format(documentTime), UpdatedAt: r.UpdatedAt.UTC().Format(documentTime),
		Version: r.Version,
	}
}

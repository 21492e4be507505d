package config

import (
	"log/slog"
	"net/url"
)

// URL is an address that may hold a password, which is not shown: it prints, logs and marshals with "xxxxx" in its place.
// Convert it to a string to use it.
type URL string

// String returns the URL without its password; one that cannot be read is not shown at all.
func (u URL) String() string {
	if u == "" {
		return ""
	}
	parsed, err := url.Parse(string(u))
	if err != nil || parsed.Scheme == "" || parsed.Opaque != "" {
		return redacted
	}
	query := parsed.Query()
	for name := range query {
		if name == "password" || name == "sentinel_password" {
			query.Set(name, "xxxxx")
			parsed.RawQuery = query.Encode()
		}
	}
	return parsed.Redacted()
}

// GoString is String.
func (u URL) GoString() string { return u.String() }

// LogValue is String.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText is String.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
)

const (
	redacted = "[redacted]"
	// maxSecretBytes bounds what is read of a secret's file.
	maxSecretBytes = 64 << 10
)

// Secret is a value that is not shown: it prints, logs and marshals as "[redacted]", or as nothing if it is empty. It is
// written in the configuration or stands in a file. Copies share what was read. The zero value is empty.
type Secret struct {
	literal string
	file    *secretFile
}

type secretFile struct {
	path string

	mu   sync.Mutex
	last string
	read bool
}

// NewSecret returns a secret whose value is text.
func NewSecret(text string) Secret { return Secret{literal: text} }

// SecretFromFile returns a secret whose value is what the file holds whenever Value is called.
func SecretFromFile(path string) Secret { return Secret{file: &secretFile{path: path}} }

// IsZero reports whether no secret was given.
func (s Secret) IsZero() bool { return s.literal == "" && s.file == nil }

// Value returns the secret. A file is read at each call, so that a secret that was replaced is used by the next
// one who asks; line breaks at its end do not belong to the secret. While a file that was read before cannot be read, or is
// empty because it is just being written, what it held last is returned. Safe for concurrent use.
func (s Secret) Value() (string, error) {
	if s.file == nil {
		return s.literal, nil
	}
	f := s.file
	f.mu.Lock()
	defer f.mu.Unlock()
	value, err := readSecret(f.path)
	switch {
	case err == nil:
		f.last, f.read = value, true
	case !f.read:
		return "", err
	}
	return f.last, nil
}

var errEmptySecret = errors.New("the file is empty: write the secret into it")

func readSecret(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxSecretBytes+1))
	if err != nil {
		return "", err
	}
	if len(text) > maxSecretBytes {
		return "", fmt.Errorf("%s: the file is larger than %d bytes: is it the right one?", path, maxSecretBytes)
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		return "", fmt.Errorf("%s: %w", path, errEmptySecret)
	}
	return string(text), nil
}

// String returns "[redacted]", or "" for no secret.
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return redacted
}

// Format prints String whatever the verb, %#v and %d included.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue is String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String. It serves JSON and YAML alike.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

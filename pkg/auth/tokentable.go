package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	maxTokenFile = 1 << 20
	maxTokens    = 1000 // each request is compared with all of them
)

// tokenTable is a token file's content. It is immutable.
type tokenTable struct{ entries []tokenEntry }

type tokenEntry struct {
	sum     [sha256.Size]byte
	who     Principal
	expires time.Time // zero: never
}

// find returns whose token it is. It takes as long for a token that is listed as for one that is not.
func (t *tokenTable) find(token string, now time.Time) (Principal, bool) {
	sum, found := sha256.Sum256([]byte(token)), -1
	for i := range t.entries {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum[:], t.entries[i].sum[:]), i, found)
	}
	if found < 0 {
		return Principal{}, false
	}
	entry := &t.entries[found]
	if !entry.expires.IsZero() && !now.Before(entry.expires) {
		return Principal{}, false
	}
	return entry.who, true
}

// parseTokens reads a token file:
//
//	tokens:
//	  - {subject: ci, role: sys_operator, hash: "sha256:...", expires: 2027-01-01T00:00:00Z}
//
// expires is optional. An empty list is valid; an empty file is not, since it may be half written. All faults are reported at once, none with the text of a hash, which may be
// a token that somebody wrote there by mistake.
func parseTokens(text []byte) (*tokenTable, error) {
	var file struct {
		Tokens *[]struct {
			Subject string    `yaml:"subject"`
			Role    string    `yaml:"role"`
			Hash    string    `yaml:"hash"`
			Expires time.Time `yaml:"expires"`
		} `yaml:"tokens"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutValues(err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document: keep one list of tokens")
	}
	if file.Tokens == nil {
		return nil, errors.New("there is no list of tokens: write tokens: [] if nobody is to be known")
	}
	if len(*file.Tokens) > maxTokens {
		return nil, fmt.Errorf("there are %d tokens: at most %d are allowed", len(*file.Tokens), maxTokens)
	}
	table, faults := &tokenTable{}, []error(nil)
	seen := map[[sha256.Size]byte]int{}
	for i, t := range *file.Tokens {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("tokens[%d]: "+format, append([]any{i}, args...)...))
		}
		role, err := ParseRole(t.Role)
		if err != nil {
			fault("role: %w", err)
		}
		sum, ok := parseHash(t.Hash)
		if !ok {
			fault("hash: write sha256: and 64 hexadecimal digits, as weir token prints them")
		} else if first, twice := seen[sum]; twice {
			fault("hash: the same as that of tokens[%d]: give each token one entry", first)
		} else {
			seen[sum] = i
		}
		if !validSubject(t.Subject) {
			fault("subject: write 1 to %d printable characters", MaxSubject)
		}
		table.entries = append(table.entries, tokenEntry{sum, Principal{t.Subject, role, ViaToken}, t.Expires})
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return table, nil
}

var quotedValue = regexp.MustCompile("`[^`]*`")

// withoutValues removes from an error of the YAML decoder the values that it quotes.
func withoutValues(err error) error {
	return errors.New(quotedValue.ReplaceAllString(err.Error(), "a value"))
}

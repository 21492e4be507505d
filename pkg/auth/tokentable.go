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
// expires is optional. An empty list is valid; an empty file is not, since it may be half written. All faults are reported
// at once, by line and without any text of the file, which may be a token that somebody wrote there by mistake.
func parseTokens(text []byte) (*tokenTable, error) {
	var document yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.New(quoted.ReplaceAllString(err.Error(), "a value"))
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document: keep one list of tokens")
	}
	list := listOf(&document)
	if list == nil {
		return nil, errors.New("there is no list of tokens: write tokens: and the entries below, or tokens: [] if nobody is to be known")
	}
	if len(list.Content) > maxTokens {
		return nil, fmt.Errorf("there are %d tokens: at most %d are allowed", len(list.Content), maxTokens)
	}
	table, seen := &tokenTable{}, map[[sha256.Size]byte]int{}
	var faults []error
	for _, node := range list.Content {
		entry, err := parseEntry(node)
		if first, twice := seen[entry.sum]; err == nil && twice {
			err = fmt.Errorf("line %d: hash: the same as in line %d: give each token one entry", node.Line, first)
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		seen[entry.sum] = node.Line
		table.entries = append(table.entries, entry)
	}
	if faults != nil {
		return nil, errors.Join(faults...)
	}
	return table, nil
}

// quoted finds what an error of the YAML parser quotes from the file.
var quoted = regexp.MustCompile("`[^`]*`|'[^']*'|\"[^\"]*\"")

// listOf returns the list under the file's only key, tokens; nil if the file has another form.
func listOf(document *yaml.Node) *yaml.Node {
	if document.Kind != yaml.DocumentNode || len(document.Content) != 1 {
		return nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "tokens" || root.Content[1].Kind != yaml.SequenceNode {
		return nil
	}
	return root.Content[1]
}

// parseEntry reads one token's entry. Its error joins all faults.
func parseEntry(node *yaml.Node) (tokenEntry, error) {
	entry := tokenEntry{who: Principal{Via: ViaToken}}
	if node.Kind != yaml.MappingNode {
		return entry, fmt.Errorf("line %d: this is no entry: write subject, role and hash", node.Line)
	}
	var faults []error
	missing := map[string]bool{"subject": true, "role": true, "hash": true, "expires": true}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if !missing[key.Value] || value.Kind != yaml.ScalarNode {
			faults = append(faults, fmt.Errorf("line %d: a field is not known, there twice, or no text: write subject, role, hash and perhaps expires", key.Line))
			continue
		}
		delete(missing, key.Value)
		if err := entry.set(key.Value, value.Value); err != nil {
			faults = append(faults, fmt.Errorf("line %d: %s: %w", value.Line, key.Value, err))
		}
	}
	for _, name := range []string{"subject", "role", "hash"} {
		if missing[name] {
			faults = append(faults, fmt.Errorf("line %d: %s is missing", node.Line, name))
		}
	}
	return entry, errors.Join(faults...)
}

func (e *tokenEntry) set(field, value string) (err error) {
	switch field {
	case "subject":
		if e.who.Subject = value; !validSubject(value) {
			return fmt.Errorf("write 1 to %d printable characters", MaxSubject)
		}
	case "role":
		e.who.Role, err = ParseRole(value)
	case "hash":
		var ok bool
		if e.sum, ok = parseHash(value); !ok {
			return errors.New("write sha256: and 64 hexadecimal digits, as weir token prints them")
		}
	case "expires":
		if e.expires, err = time.Parse(time.RFC3339, value); err != nil {
			return errors.New("write a time such as 2027-01-01T00:00:00Z")
		}
	}
	return err
}

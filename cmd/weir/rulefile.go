package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// maxRuleFile bounds what apply reads, in bytes, and maxFileRules how many rules that may be.
	maxRuleFile  = 64 << 20
	maxFileRules = 100_000
	// maxFaults bounds how many faults of a file are told.
	maxFaults = 50
)

// fileRule is one entry of the file that apply reads. The second group is what 'weir rules list' prints besides; it says
// nothing about what the rule is to be.
type fileRule struct {
	Scope             string `yaml:"scope"`
	IdentifierPattern string `yaml:"identifier_pattern"`
	Limit             int64  `yaml:"limit"`
	WindowSeconds     int64  `yaml:"window_seconds"`
	Algorithm         string `yaml:"algorithm"`
	Burst             int64  `yaml:"burst"`
	Name              string `yaml:"name"`
	Enabled           *bool  `yaml:"enabled"`

	ID        string    `yaml:"id"`
	Version   int64     `yaml:"version"`
	Source    string    `yaml:"source"`
	Domain    string    `yaml:"domain"`
	Path      string    `yaml:"path"`
	Action    string    `yaml:"action"`
	Conflict  string    `yaml:"conflict"`
	Limits    yaml.Node `yaml:"limits"`
	CreatedAt yaml.Node `yaml:"created_at"`
	UpdatedAt yaml.Node `yaml:"updated_at"`

	line int
}

// spec is the rule that the entry asks for, with the API's defaults filled in.
func (r *fileRule) spec() client.RuleSpec {
	return client.RuleSpec{
		Name: r.Name, Scope: r.Scope, IdentifierPattern: r.IdentifierPattern, Limit: r.Limit, WindowSeconds: r.WindowSeconds,
		Algorithm: r.Algorithm, Burst: r.Burst, Enabled: r.Enabled,
	}
}

// readRules reads the rules of a file ("-": of in), each one checked and no two for the same identifiers. The error tells all
// faults, by line. Rules that the list marks as a rule file's are left out and counted.
func readRules(path string, in io.Reader) (rules []fileRule, skipped int, err error) {
	text, err := readBounded(path, in)
	if err != nil {
		return nil, 0, err
	}
	if path == "-" {
		path = "standard input"
	}
	entries, err := entriesOf(text)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	var faults []error
	lines := map[string]int{}
	for _, node := range entries {
		rule, err := parseRule(node)
		if err == nil && readOnly(rule.Source) {
			skipped++
			continue
		}
		if key := rule.Scope + ":" + rule.IdentifierPattern; err == nil {
			if first, twice := lines[key]; twice {
				err = fmt.Errorf("%s is there twice, first in line %d: keep one of them", key, first)
			}
			lines[key] = node.Line
		}
		if err != nil {
			line := node.Line
			if at, ok := errors.AsType[*lineError](err); ok {
				line = at.line
			}
			faults = append(faults, fmt.Errorf("%s:%d: %w", path, line, err))
			continue
		}
		rules = append(rules, rule)
	}
	if len(faults) > maxFaults {
		faults = append(faults[:maxFaults], fmt.Errorf("and %d more", len(faults)-maxFaults))
	}
	if len(faults) > 0 {
		return nil, 0, fmt.Errorf("the rules are not valid:\n%w", errors.Join(faults...))
	}
	return rules, skipped, nil
}

func readBounded(path string, in io.Reader) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("-f: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRuleFile+1))
	if err != nil {
		return nil, fmt.Errorf("-f %s: %w", path, err)
	}
	if len(text) > maxRuleFile {
		return nil, fmt.Errorf("-f %s: it is longer than %d MiB: apply it in parts", path, maxRuleFile>>20)
	}
	return text, nil
}

// entriesOf returns the elements of the list that the document is, or has under its key "rules".
func entriesOf(text []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty: write a list of rules, or [] for none")
		}
		return nil, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the first YAML document: keep one list of rules")
	}
	root := document.Content[0]
	if root.Kind == yaml.MappingNode && len(root.Content) == 2 && root.Content[0].Value == "rules" {
		root = root.Content[1]
	}
	if root.Kind != yaml.SequenceNode {
		return nil, errors.New("it is no list of rules: see 'weir rules apply --help' for the format (rule files of the server have another)")
	}
	if len(root.Content) > maxFileRules {
		return nil, fmt.Errorf("there are %d rules: apply at most %d at a time", len(root.Content), maxFileRules)
	}
	return root.Content, nil
}

// parseRule reads one entry. The error names the field and what to write.
func parseRule(node *yaml.Node) (fileRule, error) {
	rule := fileRule{line: node.Line}
	if err := decodeStrict(node, &rule); err != nil {
		return rule, err
	}
	if readOnly(rule.Source) {
		return rule, nil
	}
	if rule.Algorithm == "" {
		rule.Algorithm = ratelimit.TokenBucket.String()
	}
	if rule.Name == "" {
		rule.Name = rule.Scope + "-" + rule.IdentifierPattern
	}
	if rule.Enabled == nil {
		rule.Enabled = new(true)
	}
	return rule, rule.check()
}

// lineError is a fault at another line than that of its rule.
type lineError struct {
	line int
	text string
}

func (e *lineError) Error() string { return e.text }

// decodeStrict decodes a mapping whose keys are all known. yaml.v3 has this for decoders alone, and its errors would have the
// lines of a part of the file.
func decodeStrict(node *yaml.Node, rule *fileRule) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node.Kind != yaml.MappingNode {
		return errors.New("this is no rule: write scope, identifier_pattern, limit and window_seconds")
	}
	for i := 0; i < len(node.Content); i += 2 {
		if key := node.Content[i].Value; !knownFields[key] && key != "<<" {
			return &lineError{node.Content[i].Line, fmt.Sprintf("there is no field %q: write %s", shown(key), fieldNames)}
		}
	}
	if err := node.Decode(rule); err != nil {
		return errors.New(strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n  ", " "), "yaml: unmarshal errors: "))
	}
	return nil
}

// fieldNames are those that say what a rule is to be.
const fieldNames = "scope, identifier_pattern, limit, window_seconds, algorithm, burst, name, enabled"

var knownFields = func() map[string]bool {
	known := map[string]bool{}
	for name := range strings.SplitSeq(fieldNames+", id, version, source, domain, path, action, conflict, limits, created_at, updated_at", ", ") {
		known[name] = true
	}
	return known
}()

func (r *fileRule) check() error {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, fmt.Errorf(field+": "+format, args...))
	}
	switch r.Scope {
	case "service", "user", "endpoint":
	case "":
		fault("scope", "it is missing: write service, user or endpoint")
	default:
		fault("scope", "there is no scope %q: write service, user or endpoint", r.Scope)
	}
	if r.IdentifierPattern == "" {
		fault("identifier_pattern", "it is missing: write *, an exact value or a wildcard")
	}
	if r.Limit < 1 || r.Limit > ratelimit.MaxCount {
		fault("limit", "%d is out of range: write 1 to %d", r.Limit, int64(ratelimit.MaxCount))
	}
	if longest := int64(ratelimit.MaxWindow / time.Second); r.WindowSeconds < 1 || r.WindowSeconds > longest {
		fault("window_seconds", "%d is out of range: write 1 to %d", r.WindowSeconds, longest)
	}
	algorithm, err := ratelimit.ParseAlgorithm(r.Algorithm)
	if err != nil {
		fault("algorithm", "%w", err)
	}
	if len(faults) == 0 {
		limit := ratelimit.Limit{Algorithm: algorithm, Count: r.Limit, Burst: r.Burst, Window: time.Duration(r.WindowSeconds) * time.Second}
		if err := limit.Check(); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

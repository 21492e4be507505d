package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/pkg/ratelimit"
	"gopkg.in/yaml.v3"
)

const (
	// MaxFileSize bounds the bytes of one rule file; 100,000 rules take about 10 MiB.
	MaxFileSize = 64 << 20
	// maxExpansion bounds the nodes that aliases may add to those that are written.
	maxExpansion = 1_000_000
)

// Parse reads the documents of one rule file. It reports everything that can be seen in this file alone; Compile reports
// the rest, so a caller that wants all problems compiles what was read, too. file is what problems call the file.
func Parse(file string, data []byte) (*Source, Problems) {
	p := &parser{file: file, source: &Source{Name: file}}
	p.documents(data)
	return p.source, p.problems.sorted()
}

type parser struct {
	file     string
	source   *Source
	problems problemList
	// visits left before the file counts as an alias bomb
	budget int
}

func (p *parser) documents(data []byte) {
	if len(data) > MaxFileSize {
		p.problems.add(Problem{
			File: p.file, Message: fmt.Sprintf("%d bytes are too much for one file", len(data)),
			Fix: fmt.Sprintf("split it into files of at most %d MiB", MaxFileSize>>20),
		})
		return
	}
	if at := invalidUTF8(data); at >= 0 {
		p.atOffset(data, at, fmt.Sprintf("byte 0x%02X is not UTF-8", data[at]), "save the file as UTF-8")
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	empty := true
	for {
		var document yaml.Node
		err := decode(decoder, &document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.syntax(data, err)
			return
		}
		if len(document.Content) == 0 || isNull(document.Content[0]) {
			continue
		}
		empty = false
		p.budget = countNodes(&document) + maxExpansion
		p.document(document.Content[0])
	}
	if empty {
		p.problems.add(Problem{File: p.file, Line: 1, Column: 1, Message: "the file holds no rules", Fix: "write a domain with its descriptors, or delete the file"})
	}
}

// decode turns what the YAML library may throw into an error: a file never ends the process.
func decode(decoder *yaml.Decoder, document *yaml.Node) (err error) {
	defer func() {
		if thrown := recover(); thrown != nil {
			err = fmt.Errorf("yaml: %v", thrown)
		}
	}()
	return decoder.Decode(document)
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// syntax reports an error of the YAML library, which knows lines but no columns.
func (p *parser) syntax(data []byte, err error) {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	problem := Problem{File: p.file, Message: message, Line: 1, Column: 1, Fix: "correct the YAML"}
	if found := yamlLine.FindStringSubmatch(message); found != nil {
		problem.Message = message[len(found[0]):]
		problem.Line, _ = strconv.Atoi(found[1])
		problem.Column = indentOf(data, problem.Line)
	}
	if strings.Contains(message, "control characters") {
		if at := bytes.IndexFunc(data, func(r rune) bool { return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0x7F }); at >= 0 {
			p.atOffset(data, at, fmt.Sprintf("control character 0x%02X", data[at]), "remove it, or write it as \"\\x..\" in double quotes")
			return
		}
	}
	if strings.Contains(message, "cannot start any token") {
		problem.Fix = "put the text into quotes, and indent with spaces"
	}
	problem.Message = "not valid YAML: " + problem.Message
	p.problems.add(problem)
}

// indentOf is the column of the first text of a line.
func indentOf(data []byte, line int) int {
	for range line - 1 {
		_, data, _ = bytes.Cut(data, []byte{'\n'})
	}
	return 1 + len(data) - len(bytes.TrimLeft(data, " "))
}

func (p *parser) atOffset(data []byte, offset int, message, fix string) {
	line := 1 + bytes.Count(data[:offset], []byte{'\n'})
	column := offset - bytes.LastIndexByte(data[:offset], '\n')
	p.problems.add(Problem{File: p.file, Line: line, Column: column, Message: message, Fix: fix})
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

func countNodes(n *yaml.Node) int {
	count := 1
	for _, each := range n.Content {
		count += countNodes(each)
	}
	return count
}

// document reads one domain.
func (p *parser) document(n *yaml.Node) {
	d := Domain{node: n}
	var named bool
	var descriptors, rules, fallback *yaml.Node
	ok := p.mapping(n, "a document", domainFields, func(name string, value *yaml.Node) {
		switch name {
		case "domain":
			d.Name, named = p.text(value, name), !isNull(value)
		case "name":
			p.text(value, name)
		case "default":
			fallback = value
		case "descriptors":
			descriptors = value
		case "rules":
			rules = value
		}
	})
	if !ok {
		return
	}
	if named && d.Name == "" || !named && (rules == nil || descriptors != nil && !isNull(descriptors)) {
		line, column := n.Line, n.Column
		if named {
			at := lookup(n, "domain", 0)
			line, column = at.Line, at.Column
		}
		p.problems.add(Problem{File: p.file, Line: line, Column: column, Message: "the domain is empty", Fix: "write domain: NAME, as the gateway sends it"})
		d.nameless = true // go on, for the sake of the other problems
	}
	p.sequence(descriptors, "descriptors", func(item *yaml.Node) {
		d.Descriptors = append(d.Descriptors, p.descriptor(item, 1))
	})
	p.sequence(rules, "rules", func(item *yaml.Node) {
		d.Descriptors = append(d.Descriptors, p.rule(item))
	})
	if fallback != nil && !isNull(fallback) {
		definition := Definition{node: resolved(fallback)}
		if p.mapping(fallback, "default", defaultFields, func(name string, value *yaml.Node) { p.common(&definition, name, value) }) {
			p.lacksLimits(&definition)
			d.Default = &definition
		}
	}
	p.source.Domains = append(p.source.Domains, d)
}

// descriptor reads a descriptor and those below it.
func (p *parser) descriptor(n *yaml.Node, depth int) Definition {
	d := Definition{node: resolved(n)}
	var below *yaml.Node
	p.mapping(n, "a descriptor", descriptorFields, func(name string, value *yaml.Node) {
		switch name {
		case "key":
			d.Key = p.text(value, name)
		case "value":
			d.Value = p.text(value, name)
		case "match":
			d.Match = p.match(value)
		case "descriptors":
			below = value
		default:
			p.common(&d, name, value)
		}
	})
	p.lacksLimits(&d)
	if below != nil && depth >= MaxDepth && !isNull(below) {
		p.fault(below, fmt.Sprintf("descriptors nest deeper than %d levels", MaxDepth), "use fewer levels")
		return d
	}
	p.sequence(below, "descriptors", func(item *yaml.Node) {
		d.Descriptors = append(d.Descriptors, p.descriptor(item, depth+1))
	})
	return d
}

// rule reads the short form: a scope and an identifier in place of a key and a value, and one limit beside them.
func (p *parser) rule(n *yaml.Node) Definition {
	d := Definition{node: resolved(n), short: true}
	limit := limitFieldsOf{}
	p.mapping(n, "a rule", ruleFields, func(name string, value *yaml.Node) {
		switch name {
		case "scope":
			d.Key = p.text(value, name)
			if d.Key == "" {
				p.fault(value, "the scope is empty", "write scope: NAME, such as user, service or endpoint")
			}
		case "identifier":
			d.Value = p.text(value, name)
			if d.Value == "" {
				p.fault(value, "the identifier is empty", `write an identifier, or "*" for every one`)
			}
		default:
			if !limit.set(name, value) {
				p.common(&d, name, value)
			}
		}
	})
	if d.node == nil || d.node.Kind != yaml.MappingNode {
		d.Key = "?" // the problem is reported; an empty key would be another
		return d
	}
	for _, name := range []string{"scope", "identifier"} {
		if lookup(d.node, name, 0) == nil {
			p.fault(d.node, "the rule has no "+name, `write `+name+`: NAME, or "*" for every identifier`)
		}
	}
	if d.Value == "*" {
		d.Value = "" // every identifier, and only where nothing else matches
	}
	if d.Key == "" {
		d.Key = "?"
	}
	switch {
	case !limit.any():
	case len(d.Limits) > 0:
		p.fault(d.node, "the rule has a limit of its own and limits", "put all of them into limits")
	default:
		if l, ok := p.limit(d.node, &limit); ok {
			d.Limits = append(d.Limits, l)
		}
	}
	if !limit.any() && len(d.Limits) == 0 && d.Action == ratelimit.ActionLimit && lookup(d.node, "limits", 0) == nil {
		p.fault(d.node, "the rule limits nothing", "write limit and window, or rate, or an action")
	}
	return d
}

// common reads what descriptors, rules and defaults share.
func (p *parser) common(d *Definition, name string, value *yaml.Node) {
	switch name {
	case "id":
		d.ID = p.text(value, name)
	case "name":
		d.Name = p.text(value, name)
	case "rate_limit":
		d.RateLimit = p.rateLimit(value)
	case "limits":
		p.sequence(value, name, func(item *yaml.Node) {
			var fields limitFieldsOf
			if p.mapping(item, "a limit", limitFields, func(name string, value *yaml.Node) { fields.set(name, value) }) {
				if l, ok := p.limit(item, &fields); ok {
					d.Limits = append(d.Limits, l)
				}
			}
		})
	case "action":
		d.Action = p.action(value)
	case "priority":
		d.Priority = int(p.integer(value, name, -maxPriority, maxPriority))
	case "shadow_mode":
		d.Shadow = p.boolean(value, name)
	case "quota_mode":
		d.QuotaMode = p.boolean(value, name)
	case "detailed_metric":
		d.DetailedMetric = p.boolean(value, name)
	case "value_to_metric":
		d.ValueToMetric = p.boolean(value, name)
	case "share_threshold":
		d.ShareThreshold = p.boolean(value, name)
	case "metadata":
		d.Metadata = p.metadata(value)
	case "on_store_failure":
		d.OnFailure = p.failureMode(value)
	case "enabled":
		d.Disabled = !isNull(value) && !p.boolean(value, name)
	}
}

// maxPriority bounds priorities; far more than anybody needs, and exact in every JSON reader.
const maxPriority = 1 << 31

// lacksLimits reports an action that asks for limits where there are none.
func (p *parser) lacksLimits(d *Definition) {
	action := lookup(d.node, "action", 0)
	if action == nil || isNull(action) || d.Action != ratelimit.ActionLimit || d.RateLimit != nil || len(d.Limits) > 0 {
		return
	}
	if limits := lookup(d.node, "limits", 0); resolved(action).Value == "limit" && (limits == nil || isNull(limits) || len(resolved(limits).Content) == 0) {
		p.fault(action, "action limit has no limits", "write limits, or another action")
	}
}

func (p *parser) match(n *yaml.Node) *Pattern {
	if isNull(n) {
		return nil
	}
	var found *Pattern
	count := 0
	ok := p.mapping(n, "match", matchFields, func(name string, value *yaml.Node) {
		if isNull(value) {
			return
		}
		count++
		found = &Pattern{Kind: kindOf(name), Text: p.text(value, name)}
		if found.Text == "" {
			p.fault(value, name+" is empty", "write a text, or remove match to match every value")
		}
	})
	if ok && count != 1 {
		p.fault(n, fmt.Sprintf("match holds %d patterns", count), "write exactly one of "+strings.Join(matchFields, ", "))
	}
	return found
}

func (p *parser) rateLimit(n *yaml.Node) *RateLimit {
	if isNull(n) {
		return nil
	}
	r := &RateLimit{}
	if !p.mapping(n, "rate_limit", rateLimitFields, func(name string, value *yaml.Node) {
		switch name {
		case "unit":
			r.Unit = p.text(value, name)
		case "unit_multiplier":
			r.UnitMultiplier = uint32(p.integer(value, name, 0, maxUint32))
		case "requests_per_unit":
			r.RequestsPerUnit = uint32(p.integer(value, name, 0, maxUint32))
		case "unlimited":
			r.Unlimited = p.boolean(value, name)
		case "name":
			r.Name = p.text(value, name)
		case "replaces":
			p.sequence(value, name, func(item *yaml.Node) {
				var replaced string
				if p.mapping(item, "an entry of replaces", replacesFields, func(name string, value *yaml.Node) { replaced = p.text(value, name) }) {
					r.Replaces = append(r.Replaces, replaced)
				}
			})
		}
	}) {
		return nil
	}
	return r
}

const maxUint32 = 1<<32 - 1

func (p *parser) action(n *yaml.Node) ratelimit.Action {
	actions := map[string]ratelimit.Action{"": ratelimit.ActionLimit, "limit": ratelimit.ActionLimit, "allow": ratelimit.ActionAllow, "deny": ratelimit.ActionDeny}
	return oneOf(p, n, "action", actions, "limit", "allow", "deny")
}

func (p *parser) failureMode(n *yaml.Node) ratelimit.FailureMode {
	modes := map[string]ratelimit.FailureMode{"": ratelimit.FailureDefault}
	for _, mode := range []ratelimit.FailureMode{ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal} {
		modes[mode.String()] = mode
	}
	return oneOf(p, n, "on_store_failure", modes, "allow", "deny", "local")
}

// oneOf reads a word out of a few.
func oneOf[T any](p *parser, n *yaml.Node, name string, words map[string]T, known ...string) T {
	word := p.text(n, name)
	value, ok := words[word]
	if !ok {
		p.fault(n, fmt.Sprintf("bad %s %q", name, word), suggest(word, known))
	}
	return value
}

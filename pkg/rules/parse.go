package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// MaxFileSize bounds the bytes of one rule file; 100,000 rules take about 10 MiB.
	MaxFileSize = 64 << 20
	// maxExpansion bounds the nodes that aliases may add to those that are written.
	maxExpansion = 200_000
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

var (
	yamlLine      = regexp.MustCompile(`^line (\d+): `)
	unknownAnchor = regexp.MustCompile(`^unknown anchor '(.*)' referenced`)
)

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
	switch {
	case strings.Contains(message, "tab character"):
		problem.Fix = "indent with spaces"
	case strings.Contains(message, "cannot start any token"):
		problem.Fix = "put the text into quotes, and indent with spaces"
	}
	if found := unknownAnchor.FindStringSubmatch(message); found != nil {
		if at := bytes.Index(data, []byte("*"+found[1])); at >= 0 {
			p.atOffset(data, at, fmt.Sprintf("alias of the unknown anchor %q", found[1]), "write &"+found[1]+" before what it stands for, further up")
			return
		}
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
	d.Descriptors = slices.Grow(d.Descriptors, itemsOf(descriptors)+itemsOf(rules))
	p.sequence(descriptors, "descriptors", func(item *yaml.Node) {
		if descriptor, ok := p.descriptor(item, 1); ok {
			d.Descriptors = append(d.Descriptors, descriptor)
		}
	})
	p.sequence(rules, "rules", func(item *yaml.Node) {
		if rule, ok := p.rule(item); ok {
			d.Descriptors = append(d.Descriptors, rule)
		}
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

// descriptor reads a descriptor and those below it. It returns false, and has reported it, if n is none.
func (p *parser) descriptor(n *yaml.Node, depth int) (Definition, bool) {
	d := Definition{node: resolved(n)}
	var below *yaml.Node
	ok := p.mapping(n, "a descriptor", descriptorFields, func(name string, value *yaml.Node) {
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
	if !ok {
		return d, false
	}
	p.lacksLimits(&d)
	if below != nil && depth >= MaxDepth && !isNull(below) {
		p.fault(below, fmt.Sprintf("descriptors nest deeper than %d levels", MaxDepth), "use fewer levels")
		return d, true
	}
	d.Descriptors = slices.Grow(d.Descriptors, itemsOf(below))
	p.sequence(below, "descriptors", func(item *yaml.Node) {
		if descriptor, ok := p.descriptor(item, depth+1); ok {
			d.Descriptors = append(d.Descriptors, descriptor)
		}
	})
	return d, true
}

// rule reads the short form: a scope and an identifier in place of a key and a value, and one limit beside them. It returns
// false, and has reported it, if n is none.
func (p *parser) rule(n *yaml.Node) (Definition, bool) {
	before := p.problems.count()
	d := Definition{node: resolved(n), short: true}
	limit := limitFieldsOf{}
	if !p.mapping(n, "a rule", ruleFields, func(name string, value *yaml.Node) {
		switch name {
		case "scope":
			d.Key = p.text(value, name)
		case "identifier":
			d.Value = p.text(value, name)
		case "name": // the rule's; a limit beside it has none of its own
			d.Name = p.text(value, name)
		default:
			if !limit.set(name, value) {
				p.common(&d, name, value)
			}
		}
	}) {
		return d, false
	}
	sound := p.problems.count() == before
	if limit.any() {
		if d.writes("limits") {
			p.fault(d.node, "the rule has a limit of its own and limits", "put all of them into limits")
		} else if l, ok := p.limit(d.node, &limit); ok {
			d.Limits = append(d.Limits, l)
		}
	} else if sound && len(d.Limits) == 0 && d.Action == ratelimit.ActionLimit {
		p.fault(d.node, "the rule limits nothing", "write limit and window, or rate, or an action")
	}
	switch {
	case sound && d.Key == "":
		p.fault(d.field("scope"), "the rule has no scope", "write scope: NAME, such as user, service or endpoint")
	case sound && d.Value == "":
		p.fault(d.field("identifier"), "the rule has no identifier", `write identifier: NAME, or "*" for every one`)
	}
	if d.Value == "*" {
		d.Value = "" // every identifier, where nothing else matches
	}
	return d, d.Key != ""
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
	case "lease":
		d.Lease = p.lease(value)
	case "action":
		d.Action = ratelimit.Action(oneOf(p, value, name, actions))
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
		d.OnFailure = oneOf(p, value, name, failureModes)
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
	before, count := p.problems.count(), 0
	p.mapping(n, "match", matchFields, func(name string, value *yaml.Node) {
		if isNull(value) {
			return
		}
		count++
		found = &Pattern{Kind: kindOf(name), Text: p.text(value, name)}
		if found.Text == "" {
			p.fault(value, name+" is empty", "write a text, or remove match to match every value")
		}
	})
	if count != 1 && p.problems.count() == before {
		p.fault(n, fmt.Sprintf("match holds %d patterns", count), "write exactly one of "+strings.Join(matchFields, ", "))
	}
	return found
}

func (p *parser) rateLimit(n *yaml.Node) *RateLimit {
	if isNull(n) {
		return nil
	}
	before := p.problems.count()
	r := &RateLimit{}
	p.mapping(n, "rate_limit", rateLimitFields, func(name string, value *yaml.Node) {
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
				p.mapping(item, "an entry of replaces", replacesFields, func(name string, value *yaml.Node) { replaced = p.text(value, name) })
				r.Replaces = append(r.Replaces, replaced)
			})
		}
	})
	if p.problems.count() != before {
		return nil // what is missing is missing because of these
	}
	return r
}

const maxUint32 = 1<<32 - 1

// The words of the fields that take one of a few.
var (
	kinds        = []ratelimit.Kind{ratelimit.Protection, ratelimit.Quota}
	failureModes = []ratelimit.FailureMode{ratelimit.FailOpen, ratelimit.FailClosed, ratelimit.FailLocal}
	actions      = []action{action(ratelimit.ActionLimit), action(ratelimit.ActionAllow), action(ratelimit.ActionDeny)}
)

// action is a rule's action with its word.
type action ratelimit.Action

func (a action) String() string {
	switch ratelimit.Action(a) {
	case ratelimit.ActionAllow:
		return "allow"
	case ratelimit.ActionDeny:
		return "deny"
	default:
		return "limit"
	}
}

// oneOf reads one of a few words. Empty is the zero value.
func oneOf[T fmt.Stringer](p *parser, n *yaml.Node, name string, values []T) (value T) {
	word := p.text(n, name)
	if word == "" {
		return value
	}
	words := make([]string, len(values))
	for i, each := range values {
		if words[i] = each.String(); words[i] == word {
			return each
		}
	}
	p.fault(n, fmt.Sprintf("bad %s %q", name, shortened(word)), suggest(word, words))
	return value
}

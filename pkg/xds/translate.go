package xds

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/pkg/rules"
)

// maxMetadataDepth bounds how deep metadata nests, as in files.
const maxMetadataDepth = 16

// translation is one resource on its way to definitions.
type translation struct {
	source   *rules.Source
	domain   string
	problems rules.Problems
}

// translate makes definitions of a resource. Its source is called after the resource.
func translate(resource *configpb.RateLimitConfig) (*rules.Source, rules.Problems) {
	t := &translation{
		source: &rules.Source{Name: "xds:" + printable(cmp.Or(resource.GetName(), resource.GetDomain()))},
		domain: resource.GetDomain(),
	}
	if t.domain == "" {
		t.fault("", "the domain is empty", "write domain, as the gateway sends it")
		return t.source, t.problems
	}
	t.source.Domains = []rules.Domain{{Name: t.domain, Descriptors: t.level("", resource.GetDescriptors())}}
	return t.source, t.problems
}

func (t *translation) level(above string, descriptors []*configpb.RateLimitDescriptor) []rules.Definition {
	if len(descriptors) == 0 {
		return nil
	}
	definitions := make([]rules.Definition, len(descriptors))
	for i, d := range descriptors {
		path := func() string { return above + d.GetKey() + "=" + d.GetValue() }
		definitions[i] = rules.Definition{
			Key: d.GetKey(), Value: d.GetValue(),
			RateLimit: policy(d.GetRateLimit()),
			Shadow:    d.GetShadowMode(), QuotaMode: d.GetQuotaMode(), DetailedMetric: d.GetDetailedMetric(),
			Metadata: t.metadata(path, d.GetMetadata()),
		}
		if below := d.GetDescriptors(); len(below) > 0 {
			definitions[i].Descriptors = t.level(path()+"|", below)
		}
	}
	return definitions
}

func policy(p *configpb.RateLimitPolicy) *rules.RateLimit {
	if p == nil {
		return nil
	}
	limit := &rules.RateLimit{RequestsPerUnit: p.GetRequestsPerUnit(), Unlimited: p.GetUnlimited(), Name: p.GetName()}
	if p.GetUnit() != configpb.RateLimitUnit_UNKNOWN {
		limit.Unit = p.GetUnit().String() // a number where the unit is newer than the type
	}
	for _, each := range p.GetReplaces() {
		limit.Replaces = append(limit.Replaces, each.GetName())
	}
	return limit
}

// metadata returns what JSON has of a struct, nil if it is empty.
func (t *translation) metadata(path func() string, from *structpb.Struct) map[string]any {
	if len(from.GetFields()) == 0 {
		return nil
	}
	if fault := metadataFault(structpb.NewStructValue(from), 0); fault != "" {
		t.fault(path(), "metadata "+fault, "write less of it, in numbers that JSON has")
		return nil
	}
	return from.AsMap()
}

// metadataFault says why a value cannot be metadata, empty if it can.
func metadataFault(v *structpb.Value, depth int) string {
	if depth > maxMetadataDepth {
		return fmt.Sprintf("nests deeper than %d levels", maxMetadataDepth)
	}
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NumberValue:
		if math.IsNaN(kind.NumberValue) || math.IsInf(kind.NumberValue, 0) {
			return fmt.Sprintf("holds %v, which JSON cannot", kind.NumberValue)
		}
	case *structpb.Value_StructValue:
		for _, each := range kind.StructValue.GetFields() {
			if fault := metadataFault(each, depth+1); fault != "" {
				return fault
			}
		}
	case *structpb.Value_ListValue:
		for _, each := range kind.ListValue.GetValues() {
			if fault := metadataFault(each, depth+1); fault != "" {
				return fault
			}
		}
	}
	return ""
}

func (t *translation) fault(path, message, fix string) {
	t.problems = append(t.problems, problem(t.source.Name, fmt.Sprintf("domain %q, %s: %s", t.domain, cmp.Or(printable(path), "itself"), message), fix))
}

func problem(source, message, fix string) rules.Problem {
	return rules.Problem{File: source, Message: message, Fix: fix}
}

// maxName bounds the bytes of a resource's name in problems and in Rule.Source.
const maxName = 256

// printable makes a text of the control plane fit for one line of a log.
func printable(text string) string {
	if len(text) > maxName {
		text = text[:maxName] + "…"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7F || r == '\u2028' || r == '\u2029' {
			return '?'
		}
		return r
	}, text)
}

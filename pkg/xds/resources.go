package xds

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirhq/weir/pkg/rules"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	// maxResources bounds the resources of one response, maxDescriptors the descriptors of all of them: a byte or two of a message
	// take hundreds in memory.
	maxResources   = 100_000
	maxDescriptors = 1_000_000
	// maxRecursion bounds how deep messages nest: descriptors, and below them metadata, each of whose levels takes three.
	maxRecursion = rules.MaxDepth + 3*maxMetadataDepth + 10
)

// resources are those of a response, by the hash of their bytes, with what was made of them. One that comes again unchanged is not
// read again, and the domain that was compiled from it is known by the very same definitions.
type resources struct {
	sources map[[sha256.Size]byte]*rules.Source
	table   *rules.Table
}

// compile makes a table of the resources of a response. The error says everything that is wrong with them.
func (old *resources) compile(opts rules.Options, response []*anypb.Any) (*resources, error) {
	if len(response) > maxResources {
		return nil, rules.Problems{problem("", fmt.Sprintf("a response of %d resources is too much", len(response)),
			fmt.Sprintf("send at most %d", maxResources))}
	}
	next := &resources{sources: make(map[[sha256.Size]byte]*rules.Source, len(response))}
	sources := make([]*rules.Source, 0, len(response))
	var problems rules.Problems
	budget := maxDescriptors
	unchanged := len(response) == len(old.sources)
	for i, resource := range response {
		if resource.GetTypeUrl() != TypeURL {
			problems = append(problems, problem("", fmt.Sprintf("resource %d is of type %q", i, printable(resource.GetTypeUrl())), "send "+TypeURL))
			continue
		}
		if budget -= countDescriptors(resource.GetValue(), configDescriptors, budget, 0); budget < 0 {
			problems = append(problems, problem("", fmt.Sprintf("the response has more than %d descriptors", maxDescriptors), "send fewer"))
			break
		}
		sum := sha256.Sum256(resource.GetValue())
		source, known := old.sources[sum]
		if !known {
			unchanged = false
			var faults rules.Problems
			source, faults = read(i, resource.GetValue())
			problems = append(problems, faults...)
		}
		next.sources[sum] = source
		sources = append(sources, source)
	}
	if unchanged && len(next.sources) == len(old.sources) && old.table != nil {
		return old, nil
	}
	// Resources come in any order. Where some share a domain, if that is allowed, the order decides between patterns.
	slices.SortStableFunc(sources, func(a, b *rules.Source) int { return strings.Compare(a.Name, b.Name) })
	var err error
	if old.table == nil {
		next.table, err = rules.Compile(opts, sources...)
	} else {
		next.table, err = old.table.Recompile(sources...)
	}
	if found, ok := err.(rules.Problems); ok { //nolint:errorlint // it is what Compile returns, and its elements are wanted
		problems = append(problems, found...)
	} else if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return next, nil
}

// read makes definitions of a resource's bytes. index is its place in the response.
func read(index int, message []byte) (*rules.Source, rules.Problems) {
	var resource configpb.RateLimitConfig
	if err := (proto.UnmarshalOptions{RecursionLimit: maxRecursion, DiscardUnknown: true}).Unmarshal(message, &resource); err != nil {
		return &rules.Source{}, rules.Problems{problem("", fmt.Sprintf("resource %d cannot be read: %v", index, err), "send a RateLimitConfig")}
	}
	return translate(&resource)
}

// The fields that hold descriptors.
const (
	configDescriptors     = protowire.Number(3)
	descriptorDescriptors = protowire.Number(4)
)

// countDescriptors counts the descriptors below a message, up to one more than most, without reading them. What is not well-formed
// is left to who reads it.
func countDescriptors(message []byte, field protowire.Number, most, depth int) int {
	count := 0
	for len(message) > 0 && count <= most && depth <= maxRecursion {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			break
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			break
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			count += 1 + countDescriptors(value, descriptorDescriptors, most-count, depth+1)
		}
		message = message[n:]
	}
	return count
}

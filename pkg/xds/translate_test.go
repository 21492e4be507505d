package xds

import (
	"strings"
	"testing"

	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// Any resource, good or bad, means as rules by xDS what its text means as a file, and is refused by both or by none.
func TestResourcesMeanWhatFilesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := &configpb.RateLimitConfig{
			Name: "name", Domain: rapid.SampledFrom([]string{"a", "default/eg/http"}).Draw(t, "domain"), Descriptors: someDescriptors(t, 3),
		}
		if len(config.Descriptors) == 0 {
			return
		}
		text, err := (protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}).Marshal(config) // JSON is YAML
		if err != nil {
			t.Fatal(err)
		}
		source, problems := rules.Parse("file", text)
		fromFile, fileErr := rules.Compile(rules.Options{}, source)
		resource, err := anypb.New(config)
		if err != nil {
			t.Fatal(err)
		}
		fromPlane, planeErr := new(resources).compile(rules.Options{}, []*anypb.Any{resource})
		if refused := fileErr != nil || len(problems) > 0; refused != (planeErr != nil) {
			t.Fatalf("as a file: %v %v\nby xDS: %v\n%s", problems, fileErr, planeErr, text)
		}
		if planeErr == nil && fromPlane.table.Hash() != fromFile.Hash() {
			t.Fatalf("hash %s as a file, %s by xDS\n%s", fromFile.Hash(), fromPlane.table.Hash(), text)
		}
	})
}

func someDescriptors(t *rapid.T, levels int) []*configpb.RateLimitDescriptor {
	descriptors := make([]*configpb.RateLimitDescriptor, rapid.IntRange(0, 3).Draw(t, "descriptors"))
	for i := range descriptors {
		d := &configpb.RateLimitDescriptor{
			Key:            rapid.SampledFrom([]string{"user", "path", "masked_remote_address", "we*", "a=b"}).Draw(t, "key"),
			Value:          rapid.SampledFrom([]string{"", "", "x", "y", "10.0.0.0/8", "invert:x", "pre*", "*", "true", "5"}).Draw(t, "value"),
			ShadowMode:     rapid.Bool().Draw(t, "shadow"),
			QuotaMode:      rapid.Bool().Draw(t, "quota"),
			DetailedMetric: rapid.Bool().Draw(t, "detailed"),
		}
		if rapid.Bool().Draw(t, "limited") {
			d.RateLimit = &configpb.RateLimitPolicy{
				Unit:            configpb.RateLimitUnit(rapid.IntRange(1, 7).Draw(t, "unit")),
				RequestsPerUnit: rapid.Uint32().Draw(t, "requests"),
				Name:            rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "name"),
			}
			if rapid.IntRange(0, 9).Draw(t, "unlimited") == 0 {
				d.RateLimit.Unlimited = true
				d.RateLimit.Unit = configpb.RateLimitUnit(rapid.IntRange(0, 1).Draw(t, "unit of an unlimited one"))
			}
			for range rapid.IntRange(0, 2).Draw(t, "replaces") {
				d.RateLimit.Replaces = append(d.RateLimit.Replaces, &configpb.RateLimitReplace{
					Name: rapid.SampledFrom([]string{"one", "three", "three", "three", ""}).Draw(t, "replaced"),
				})
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "metadata") == 0 {
			d.Metadata, _ = structpb.NewStruct(map[string]any{"tier": "gold", "weight": 1.5, "on": true, "none": nil, "list": []any{1.0, "two"}, "in": map[string]any{"a": "b"}})
		}
		if levels > 1 {
			d.Descriptors = someDescriptors(t, levels-1)
		}
		descriptors[i] = d
	}
	return descriptors
}

func TestEveryFieldIsTranslated(t *testing.T) {
	metadata, err := structpb.NewStruct(map[string]any{"tier": "gold"})
	if err != nil {
		t.Fatal(err)
	}
	resource, err := anypb.New(&configpb.RateLimitConfig{Name: "default/eg", Domain: "edge", Descriptors: []*configpb.RateLimitDescriptor{
		{Key: "any", RateLimit: &configpb.RateLimitPolicy{Unlimited: true, Name: "free"}},
		{Key: "plan", Value: "pro", Descriptors: []*configpb.RateLimitDescriptor{{
			Key: "user", ShadowMode: true, QuotaMode: true, DetailedMetric: true, Metadata: metadata,
			RateLimit: &configpb.RateLimitPolicy{
				Unit: configpb.RateLimitUnit_WEEK, RequestsPerUnit: 1 << 31, Name: "weekly", Replaces: []*configpb.RateLimitReplace{{Name: "free"}},
			},
		}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	set, err := new(resources).compile(rules.Options{}, []*anypb.Any{resource})
	if err != nil {
		t.Fatal(err)
	}
	all := set.table.Rules()
	if len(all) != 2 || !all[0].Unlimited || all[0].Name != "free" {
		t.Fatalf("the rules are %+v", all)
	}
	r := all[1]
	if r.Domain != "edge" || r.Path != "plan=pro|user" || !r.Shadow || !r.QuotaMode || !r.DetailedMetric || r.Name != "weekly" ||
		r.Metadata["tier"] != "gold" || len(r.Replaces) != 1 || r.Replaces[0] != "free" || r.Source != "xds:default/eg" {
		t.Errorf("the rule is %+v", r)
	}
	if l := r.Limits[0]; l.Algorithm != ratelimit.FixedWindow || l.Count != 1<<31 || l.Window.Hours() != 7*24 {
		t.Errorf("the limit is %+v", l)
	}
}

func TestNamesFitForALog(t *testing.T) {
	source, _ := translate(&configpb.RateLimitConfig{Name: "a\nb\x00" + strings.Repeat("é", 1000), Domain: "d"})
	if len(source.Name) > 2*maxName || strings.ContainsAny(source.Name, "\n\x00") {
		t.Errorf("the source is called %q", source.Name)
	}
	if source, _ := translate(&configpb.RateLimitConfig{Domain: "d"}); source.Name != "xds:d" {
		t.Errorf("a resource without a name is called %q", source.Name)
	}
}

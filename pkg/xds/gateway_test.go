package xds

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// gatewaySets is how many sets of rules Envoy Gateway's tests generate.
const gatewaySets = 26

// What Envoy Gateway generates means the same through files and through xDS.
func TestRuleSetsOfEnvoyGateway(t *testing.T) {
	paths, err := filepath.Glob("testdata/envoy-gateway/*.yaml")
	if err != nil || len(paths) != gatewaySets {
		t.Fatalf("%d sets, want %d (%v)", len(paths), gatewaySets, err)
	}
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	for i, path := range paths {
		fromFile, err := rules.Load([]string{path}, rules.Options{})
		if err != nil {
			t.Errorf("as a file: %v", err)
			p.set()
			p.acked(i + 1)
			continue
		}
		p.set(resourcesOf(t, path)...)
		p.acked(i + 1)
		fromPlane, _ := into.current()
		if fromFile.Len() == 0 || fromFile.Len() != fromPlane.Len() || fromFile.Hash() != fromPlane.Hash() {
			t.Errorf("%s: %d rules, hash %s as a file, %d rules, hash %s by xDS", path, fromFile.Len(), fromFile.Hash(), fromPlane.Len(), fromPlane.Hash())
		}
		for _, rule := range fromFile.Rules() {
			entries := entriesOf(rule)
			for range 2 { // the second time what no rule is for
				a, b := fromFile.Match(rule.Domain, entries), fromPlane.Match(rule.Domain, entries)
				if !same(a, b) {
					t.Errorf("%s: domain %s, %v: %+v as a file, %+v by xDS", path, rule.Domain, entries, a.Rule, b.Rule)
				}
				entries = append(entries, ratelimit.Entry{Key: "no", Value: "such"})
			}
		}
	}
	if len(into.refused) > 0 {
		t.Errorf("refused: %v", into.refused)
	}
}

// resourcesOf reads the documents of a set of Envoy Gateway as resources.
func resourcesOf(t *testing.T, path string) []*configpb.RateLimitConfig {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var configs []*configpb.RateLimitConfig
	for decoder := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var document map[string]any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return configs
		} else if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		config := &configpb.RateLimitConfig{}
		// The files have fields that the type has not.
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, config); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		configs = append(configs, config)
	}
}

// entriesOf is a descriptor that meets a rule.
func entriesOf(rule *ratelimit.Rule) []ratelimit.Entry {
	entries := make([]ratelimit.Entry, len(rule.Match))
	for i, m := range rule.Match {
		entries[i] = ratelimit.Entry{Key: m.Key, Value: m.Pattern}
		if m.Kind == ratelimit.MatchAny {
			entries[i].Value = "anything"
		}
	}
	return entries
}

// same tells whether two matches decide alike; where their rules come from does not count.
func same(a, b rules.Match) bool {
	if (a.Rule == nil) != (b.Rule == nil) || a.DomainKnown != b.DomainKnown || a.Default != b.Default {
		return false
	}
	if a.Rule == nil {
		return true
	}
	one, other := *a.Rule, *b.Rule
	one.Source, other.Source = "", ""
	return reflect.DeepEqual(one, other)
}

package differential

import (
	"fmt"
	"math/rand/v2"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"gopkg.in/yaml.v3"
)

// A rule file, in the format of envoyproxy/ratelimit.
type (
	file struct {
		Domain      string       `yaml:"domain"`
		Descriptors []descriptor `yaml:"descriptors"`
	}
	descriptor struct {
		Key            string       `yaml:"key"`
		Value          string       `yaml:"value,omitempty"`
		RateLimit      *limit       `yaml:"rate_limit,omitempty"`
		Descriptors    []descriptor `yaml:"descriptors,omitempty"`
		ShadowMode     bool         `yaml:"shadow_mode,omitempty"`
		QuotaMode      bool         `yaml:"quota_mode,omitempty"`
		DetailedMetric bool         `yaml:"detailed_metric,omitempty"`
		ValueToMetric  bool         `yaml:"value_to_metric,omitempty"`
		ShareThreshold bool         `yaml:"share_threshold,omitempty"`
	}
	limit struct {
		Unit            string     `yaml:"unit,omitempty"`
		RequestsPerUnit uint32     `yaml:"requests_per_unit,omitempty"`
		Unlimited       bool       `yaml:"unlimited,omitempty"`
		Name            string     `yaml:"name,omitempty"`
		Replaces        []replaced `yaml:"replaces,omitempty"`
	}
	replaced struct {
		Name string `yaml:"name"`
	}
)

// One case is a rule file and the requests that are sent under it.
type scenario struct {
	domain   string
	rules    string
	listing  []string // what /rlconfig says of the rules, in no order
	requests []*rlsv3.RateLimitRequest
}

// The few keys and values that rules and requests are made of, so that they often meet.
var (
	keys   = []string{"user", "path", "tier", "source-cidr"}
	values = []string{"a", "b", "abc", "/api/v1", "10.0.0.0/8", "é:|", ""}
	units  = []string{"hour", "DAY", "Week", "month", "year", "minute", "second"}
)

type generator struct {
	random *rand.Rand
	names  []string // of limits so far
	lines  []string // of /rlconfig
	// steady gives a descriptor always the same limit: see differences.
	steady bool
	// seconds allows windows of a second, which end while a case runs if it is long.
	seconds bool
}

func (g *generator) one(of []string) string { return of[g.random.IntN(len(of))] }
func (g *generator) chance(n int) bool      { return g.random.IntN(n) == 0 }

// generate draws a scenario. The number makes its domain, so that what is counted for it is nobody else's.
func generate(random *rand.Rand, number int, steady bool) scenario {
	g := &generator{random: random, steady: steady, seconds: number%4 == 0}
	s := scenario{domain: fmt.Sprintf("case-%d/http", number)}
	rules, err := yaml.Marshal(file{Domain: s.domain, Descriptors: g.level(s.domain, 0)})
	if err != nil {
		panic(err)
	}
	s.rules, s.listing = string(rules), g.lines
	n := 150
	if g.seconds {
		n = 25
	}
	for range n {
		s.requests = append(s.requests, g.request(s.domain))
	}
	return s
}

func (g *generator) level(parent string, depth int) []descriptor {
	var level []descriptor
	taken := map[string]bool{}
	for range 1 + g.random.IntN(4) {
		d := descriptor{Key: g.one(keys)}
		switch g.random.IntN(5) {
		case 0, 1:
			d.Value = g.one(values)
		case 2:
			d.Value = g.one([]string{"a*", "/api*", "10.*", "*"})
			d.ShareThreshold = g.chance(2)
		}
		place := d.Key
		if d.Value != "" {
			place += "_" + d.Value
		}
		if taken[place] {
			continue
		}
		taken[place] = true
		if depth < 2 && g.chance(2) {
			d.Descriptors = g.level(parent+"."+place, depth+1)
		}
		if d.Descriptors == nil || g.chance(2) {
			d.RateLimit = g.limit()
			d.ShadowMode, d.QuotaMode = g.chance(6), g.chance(8)
			d.DetailedMetric = g.chance(4)
			unit := strings.ToUpper(d.RateLimit.Unit)
			if unit == "" {
				unit = "UNKNOWN"
			}
			g.lines = append(g.lines, fmt.Sprintf("%s.%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t",
				parent, place, unit, d.RateLimit.RequestsPerUnit, d.ShadowMode, d.QuotaMode))
		}
		d.ValueToMetric = g.chance(4)
		level = append(level, d)
	}
	return level
}

func (g *generator) limit() *limit {
	if g.chance(8) {
		return &limit{Unlimited: true}
	}
	l := &limit{Unit: g.one(units[:5]), RequestsPerUnit: g.random.Uint32N(12)}
	if g.seconds {
		l.Unit = g.one(units)
	}
	if g.chance(2) {
		l.Name = fmt.Sprintf("limit %d", len(g.names))
		for _, name := range g.names {
			if g.chance(6) {
				l.Replaces = append(l.Replaces, replaced{name})
			}
		}
		g.names = append(g.names, l.Name)
	}
	return l
}

func (g *generator) request(domain string) *rlsv3.RateLimitRequest {
	request := &rlsv3.RateLimitRequest{Domain: domain}
	if g.chance(30) {
		request.Domain = g.one([]string{"", domain + "-unknown"})
	}
	if g.chance(4) {
		request.HitsAddend = g.random.Uint32N(6)
	}
	n := 1 + g.random.IntN(3)
	if g.chance(40) {
		n = 0
	}
	for range n {
		d := &commonv3.RateLimitDescriptor{}
		for range 1 + g.random.IntN(3) {
			d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{
				Key: g.one(keys), Value: g.one([]string{"a", "b", "abc", "abd", "/api/v1", "/api/v2", "10.0.0.0/8", "10.1.0.0/16", "é:|", ""}),
			})
		}
		if g.chance(5) {
			d.HitsAddend = wrapperspb.UInt64(uint64(g.random.IntN(5))) //nolint:gosec // small
		}
		if !g.steady && g.chance(12) {
			d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{
				RequestsPerUnit: g.random.Uint32N(9), Unit: typev3.RateLimitUnit(3 + g.random.IntN(2)), //nolint:gosec // HOUR or DAY
			}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

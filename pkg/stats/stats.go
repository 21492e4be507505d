package stats

import (
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// Defaults of Options.
const (
	DefaultNearLimitRatio = 0.8
	DefaultMaxRules       = 10_000
)

// Options are a Stats' settings. The zero value is usable.
type Options struct {
	// NearLimitRatio is the part of a limit above which hits are near it, up to 1. 0: DefaultNearLimitRatio.
	NearLimitRatio float64
	// MaxRules is how many rules have names of their own, in the order of their first use; the others share the name "other".
	// 0: DefaultMaxRules.
	MaxRules int
	// MaxValues is how many names that hold values of requests each rule has, and how many unknown domains have one. 0: none,
	// so that all are counted without values.
	MaxValues int
}

// Stats are the statistics of one process. It is an engine.Recorder. All methods are safe for concurrent use; deciding
// allocates and locks nothing, but for names that hold values of requests, which take a lock for reading.
type Stats struct {
	options Options
	near    float32
	service service

	// byRule finds the names of a rule. Rules that are not in force any more are taken out, so that it keeps none of them alive.
	// *ratelimit.Rule to *ruleNames.
	byRule sync.Map

	mu         sync.RWMutex
	families   map[string]*family   // under mu; by the rule's name without values
	rules      []*ratelimit.Rule    // under mu; those in force, listed even before their first use
	generation uint64               // under mu; counts the changes of rules
	retired    []*series            // under mu; of rules that are gone, until they are flushed
	flushed    bool                 // under mu; there is a Flusher
	override   map[string]*family   // under mu; by domain
	unknown    map[string]*notFound // under mu; by domain
	elsewise   *notFound            // of the domains beyond MaxValues
	other      *family              // of the rules beyond MaxRules

	durations durations
}

// service are the counters that belong to no rule.
type service struct {
	redisError, serviceError          counter
	configLoadSuccess, configLoadFail counter
	globalShadowMode, totalRequests   counter
}

var _ engine.Recorder = (*Stats)(nil)

// New returns statistics that are all 0.
func New(options Options) *Stats {
	if options.NearLimitRatio <= 0 || options.NearLimitRatio > 1 {
		options.NearLimitRatio = DefaultNearLimitRatio
	}
	if options.MaxRules <= 0 {
		options.MaxRules = DefaultMaxRules
	}
	return &Stats{
		options:  options,
		near:     float32(options.NearLimitRatio),
		families: make(map[string]*family),
		override: make(map[string]*family),
		unknown:  make(map[string]*notFound),
		elsewise: &notFound{name: other},
		other:    newFamily(other),
	}
}

// Decided implements engine.Recorder. Looks and refunds count nothing, nor does a descriptor without a limit.
func (s *Stats) Decided(domain string, entries []ratelimit.Entry, status *engine.Status) {
	rule := status.Rule
	if status.Cost <= 0 || rule == nil && !status.Override || status.Limit == nil && status.Outcome == ratelimit.OutcomeAllowed {
		return
	}
	var counts *series
	switch {
	case status.Override:
		counts = s.overridden(domain, entries)
	default:
		names := s.find(rule)
		counts = &names.plain
		if names.valued {
			counts = names.value(rule, entries, s.options.MaxValues)
		}
	}
	counts.decided(status, s.near)
}

// UnknownDomain implements engine.Recorder.
func (s *Stats) UnknownDomain(domain string, descriptors int) {
	s.notFound(domain).count.Add(uint64(descriptors))
}

// Answered implements engine.Recorder.
func (s *Stats) Answered(decision *engine.Decision) {
	if decision.Degraded || decision.StoreErr != nil {
		s.service.redisError.Add(1)
	}
	if decision.Shadowed {
		s.service.globalShadowMode.Add(1)
	}
}

// Called counts a call of ShouldRateLimit that has ended, elapsed after it arrived. failed tells that it had no answer.
func (s *Stats) Called(failed bool, elapsed time.Duration) {
	s.service.totalRequests.Add(1)
	if failed {
		s.service.serviceError.Add(1)
	}
	s.durations.observe(elapsed)
}

// RulesLoaded counts a load of the rules that was good.
func (s *Stats) RulesLoaded() { s.service.configLoadSuccess.Add(1) }

// RulesRefused counts a load of the rules that changed nothing, because of their errors.
func (s *Stats) RulesRefused() { s.service.configLoadFail.Add(1) }

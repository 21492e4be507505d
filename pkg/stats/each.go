package stats

import (
	"maps"
	"slices"
)

// What names begin with.
const (
	rulePrefix    = "ratelimit.service.rate_limit."
	servicePrefix = "ratelimit.service."
	serverPrefix  = "ratelimit_server.ShouldRateLimit."
)

// named is a counter under its whole name.
type named struct {
	name    string
	counter *counter
}

// counters lists the counters of the service that belong to no rule.
func (s *service) counters() []named {
	return []named{
		{servicePrefix + "call.should_rate_limit.redis_error", &s.redisError},
		{servicePrefix + "call.should_rate_limit.service_error", &s.serviceError},
		{servicePrefix + "config_load_error", &s.configLoadFail},
		{servicePrefix + "config_load_success", &s.configLoadSuccess},
		{servicePrefix + "global_shadow_mode", &s.globalShadowMode},
		{serverPrefix + "total_requests", &s.totalRequests},
	}
}

// series returns all counters of rules, and all unknown domains. Two of them may have one name.
func (s *Stats) series() (all []*series, unknown []*notFound) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	visit := func(each *series) { all = append(all, each) }
	for _, f := range s.families {
		f.each(visit)
	}
	for _, f := range s.override {
		f.each(func(each *series) {
			if each != &f.plain || each.used() {
				visit(each)
			}
		})
	}
	if s.other.plain.used() {
		visit(&s.other.plain)
	}
	unknown = slices.Collect(maps.Values(s.unknown))
	if s.elsewise.count.Load() > 0 {
		unknown = append(unknown, s.elsewise)
	}
	return all, unknown
}

// Each calls visit with every counter's whole name and value, sorted by name. The counters of a rule in force are there before
// its first use.
func (s *Stats) Each(visit func(name string, value uint64)) {
	values := make(map[string]uint64)
	for _, c := range s.service.counters() {
		values[c.name] = c.counter.Load()
	}
	all, unknown := s.series()
	for _, each := range all {
		for i := range each.counts {
			values[rulePrefix+each.name+"."+counterNames[i]] += each.counts[i].Load()
		}
	}
	for _, domain := range unknown {
		values[rulePrefix+domain.name+".domain_not_found"] += domain.count.Load()
	}
	for _, name := range s.unused() {
		for i := range counterNames {
			values[rulePrefix+name+"."+counterNames[i]] += 0
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		visit(name, values[name])
	}
}

// unused returns the names of the rules in force that have decided nothing yet.
func (s *Stats) unused() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var names []string
	var buffer [maxName]byte
	for _, rule := range s.rules {
		name := appendRuleName(buffer[:0], rule)
		if s.families[string(name)] == nil && !rule.Disabled {
			names = append(names, sanitised(string(name)))
		}
	}
	return names
}

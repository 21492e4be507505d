package dropin

import (
	"net"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/stats"
)

func (m *mapping) dogStatsD() bool  { return !m.bool("DISABLE_STATS") && m.bool("USE_DOG_STATSD") }
func (m *mapping) prometheus() bool { return !m.bool("DISABLE_STATS") && m.bool("USE_PROMETHEUS") }

// statsd tells whether statistics go to a statsd server. They do by default, but who asks for another way and does not name this
// one means the other: envoyproxy/ratelimit knows one at a time.
func (m *mapping) statsd() bool {
	if m.bool("DISABLE_STATS") || !m.set("USE_STATSD") && (m.dogStatsD() || m.prometheus()) {
		return false
	}
	return m.bool("USE_STATSD")
}

func (m *mapping) sendsStatistics() bool { return m.statsd() || m.dogStatsD() }

func sendStatistics(m *mapping, v *Variable) {
	address := net.JoinHostPort(m.text("STATSD_HOST"), m.plain("STATSD_PORT"))
	switch {
	case m.statsd() && m.dogStatsD():
		m.fault(v.Name, "is true, and so is USE_DOG_STATSD: statistics go one way, set one of them to false")
	case m.statsd():
		m.assign(v.Name, "statsd.address", "tcp://"+address)
	case m.dogStatsD():
		m.assign("USE_DOG_STATSD", "statsd.address", "udp://"+address)
		m.assign("USE_DOG_STATSD", "statsd.dialect", config.DialectDogStatsD)
	}
}

func extraTags(m *mapping, v *Variable) {
	var tags []string
	for _, tag := range pairsOf(m.text(v.Name)) {
		tags = append(tags, tag.name+":"+tag.value)
	}
	if tags != nil {
		m.list(v.Name, "statsd.tags", tags)
	}
}

func showStatistics(m *mapping, v *Variable) {
	if !m.bool(v.Name) {
		return
	}
	m.assign(v.Name, "metrics.envoyproxy_names", "true")
	m.assign("PROMETHEUS_ADDR", "metrics.address", m.text("PROMETHEUS_ADDR"))
}

// mogrifierPrefixes begin the variables of a mogrifier. The second one is what people write, too.
var mogrifierPrefixes = []string{"DOG_STATSD_MOGRIFIER_", "DOG_STATSD_MOGRIFIERS_"}

func mogrifiers(m *mapping, v *Variable) {
	var all []string
	for _, name := range listOf(m.text(v.Name)) {
		name = strings.TrimSpace(name)
		part := func(suffix string) (variable, value string) {
			for _, prefix := range mogrifierPrefixes {
				if variable = prefix + name + suffix; m.set(variable) {
					return variable, m.values[variable]
				}
			}
			return mogrifierPrefixes[0] + name + suffix, ""
		}
		pattern, patternText := part("_PATTERN")
		title, titleText := part("_NAME")
		tagList, tagsText := part("_TAGS")
		switch {
		case patternText == "" || strings.Contains(patternText, " => "):
			m.fault(pattern, "%q is no pattern: write a regular expression that matches names of statistics, without \" => \"", patternText)
			continue
		case titleText == "" || strings.ContainsAny(titleText, " \t"):
			m.fault(title, "%q is no name of a statistic: write one without spaces, with $1 for what the pattern's first group matches", titleText)
			continue
		}
		if err := Map.check(tagsText); err != nil {
			m.fault(tagList, "%s", err)
			continue
		}
		var tags []string
		for _, tag := range pairsOf(tagsText) {
			tags = append(tags, strings.TrimSpace(tag.name)+":"+strings.TrimSpace(tag.value))
		}
		slices.Sort(tags)
		text := patternText + " => " + titleText
		if tags != nil {
			text += " " + strings.Join(tags, ",")
		}
		if _, err := stats.ParseMogrifier(text); err != nil {
			m.fault(pattern, "%s", err)
			continue
		}
		all = append(all, text)
	}
	if all != nil {
		m.list(v.Name, "statsd.mogrifiers", all)
	}
}

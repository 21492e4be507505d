package stats

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
	"gopkg.in/yaml.v3"
)

// defaultMapping gives the names that the reference's default mapping gives.
//
//go:embed mapping.yaml
var defaultMapping string

// ErrMapping is wrapped by the errors of ParseMapping.
var ErrMapping = errors.New("bad mapping")

// Mapping gives statistics their names and labels for Prometheus. It is safe for concurrent use.
type Mapping struct{ mapper mapper.MetricMapper }

// DefaultMapping returns the mapping that the reference has without a file of one's own.
func DefaultMapping() *Mapping {
	m, err := ParseMapping([]byte(defaultMapping))
	if err != nil {
		panic(err) // a test reads it
	}
	return m
}

// ParseMapping reads a mapping file of statsd_exporter, with globs and regular expressions. The words that its older versions
// had (timer_type, buckets, quantiles, the metric type timer) are understood too, because the reference's files have them. A time to live is not
// heeded.
func ParseMapping(text []byte) (*Mapping, error) {
	modern, err := modernized(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMapping, err)
	}
	m := &Mapping{}
	if err := m.mapper.InitFromYAMLString(string(modern)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMapping, err)
	}
	return m, nil
}

// modernized rewrites the words that statsd_exporter has renamed.
func modernized(text []byte) ([]byte, error) {
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	if defaults, ok := file["defaults"].(map[string]any); ok {
		modernize(defaults)
	}
	mappings, _ := file["mappings"].([]any)
	for _, each := range mappings {
		if mapping, ok := each.(map[string]any); ok {
			modernize(mapping)
		}
	}
	return yaml.Marshal(file)
}

func modernize(mapping map[string]any) {
	for _, word := range []struct{ old, section, now string }{
		{"timer_type", "", "observer_type"},
		{"buckets", "histogram_options", "buckets"},
		{"quantiles", "summary_options", "quantiles"},
	} {
		value, ok := mapping[word.old]
		if !ok {
			continue
		}
		delete(mapping, word.old)
		to := mapping
		if word.section != "" {
			section, ok := mapping[word.section].(map[string]any)
			if !ok {
				section = make(map[string]any)
				mapping[word.section] = section
			}
			to = section
		}
		if _, ok := to[word.now]; !ok {
			to[word.now] = value
		}
	}
	if mapping["match_metric_type"] == "timer" {
		mapping["match_metric_type"] = string(mapper.MetricTypeObserver)
	}
}

// target is what a statistic is for Prometheus.
type target struct {
	name   string // empty: it is not shown
	help   string
	labels prometheus.Labels
	scale  float64
	// unmapped is true if nothing matches: such a statistic is shown once it is not 0, for its name is one of its own.
	unmapped bool
}

const defaultHelp = "A statistic of envoyproxy/ratelimit."

// target finds what a counter's name is mapped to. A name that nothing matches is shown as it is, as statsd_exporter does.
func (m *Mapping) target(name string, kind mapper.MetricType) (target, *mapper.MetricMapping) {
	mapping, labels, found := m.mapper.GetMapping(name, kind)
	if !found {
		return target{name: mapper.EscapeMetricName(name), help: defaultHelp, scale: 1, unmapped: true}, nil
	}
	if mapping.Action == mapper.ActionTypeDrop || mapping.Name == "" {
		return target{}, mapping
	}
	t := target{name: mapper.EscapeMetricName(mapping.Name), help: mapping.HelpText, labels: labels, scale: 1}
	if t.help == "" {
		t.help = defaultHelp
	}
	if mapping.Scale.Set {
		t.scale = mapping.Scale.Val
	}
	return t, mapping
}

// observer returns what shows a timer, in the form that the mapping asks for. nil: it is not shown.
func (m *Mapping) observer(name string) (prometheus.Observer, prometheus.Collector) {
	t, mapping := m.target(name, mapper.MetricTypeObserver)
	if t.name == "" {
		return nil, nil
	}
	kind := m.mapper.Defaults.ObserverType
	if mapping != nil && mapping.ObserverType != mapper.ObserverTypeDefault {
		kind = mapping.ObserverType
	}
	if kind == mapper.ObserverTypeHistogram {
		options := prometheus.HistogramOpts{Name: t.name, Help: t.help, ConstLabels: t.labels, Buckets: m.mapper.Defaults.HistogramOptions.Buckets}
		if mapping != nil && mapping.HistogramOptions != nil && len(mapping.HistogramOptions.Buckets) > 0 {
			options.Buckets = mapping.HistogramOptions.Buckets
		}
		histogram := prometheus.NewHistogram(options)
		return scaled{histogram, t.scale}, histogram
	}
	options := prometheus.SummaryOpts{Name: t.name, Help: t.help, ConstLabels: t.labels, Objectives: make(map[float64]float64)}
	quantiles := m.mapper.Defaults.SummaryOptions.Quantiles
	if mapping != nil && mapping.SummaryOptions != nil {
		options.MaxAge, options.AgeBuckets = mapping.SummaryOptions.MaxAge, mapping.SummaryOptions.AgeBuckets
		options.BufCap = mapping.SummaryOptions.BufCap
		if len(mapping.SummaryOptions.Quantiles) > 0 {
			quantiles = mapping.SummaryOptions.Quantiles
		}
	}
	for _, q := range quantiles {
		options.Objectives[q.Quantile] = q.Error
	}
	summary := prometheus.NewSummary(options)
	return scaled{summary, t.scale}, summary
}

// scaled observes in another unit.
type scaled struct {
	prometheus.Observer
	scale float64
}

// Observe implements prometheus.Observer.
func (s scaled) Observe(value float64) { s.Observer.Observe(value * s.scale) }

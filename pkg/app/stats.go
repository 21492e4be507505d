package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/ruleset"
	"github.com/weirhq/weir/pkg/stats"
	"github.com/weirhq/weir/pkg/telemetry"
)

// newStats makes the statistics of envoyproxy/ratelimit, or nil if nobody is shown them: then they cost nothing.
func (a *app) newStats() *stats.Stats {
	if !a.config.Statsd.Enabled() && !a.config.Metrics.EnvoyproxyNames && !a.config.Server.EnvoyproxyEndpoints {
		return nil
	}
	return stats.New(stats.Options{
		NearLimitRatio: a.config.RateLimit.NearLimitRatio,
		MaxRules:       a.config.Metrics.MaxRules,
		MaxValues:      a.config.Metrics.MaxValues,
	})
}

// called counts a call of ShouldRateLimit that has ended.
func (a *app) called(path string, code codes.Code, elapsed time.Duration) {
	if a.stats != nil && path == envoy.MethodPath {
		a.stats.Called(code != codes.OK, elapsed)
	}
}

// showStats tells Prometheus and a statsd server of the statistics, as far as the settings ask for it.
func (a *app) showStats() error {
	if a.stats == nil {
		return nil
	}
	if a.config.Metrics.EnvoyproxyNames {
		mapping, err := a.statsMapping()
		if err != nil {
			return err
		}
		a.metrics.Registerer().MustRegister(a.stats.Collector(mapping))
	}
	if a.config.Statsd.Enabled() {
		return a.sendStats()
	}
	return nil
}

// statsMapping is what gives the statistics their names for Prometheus. A file that is not there is no reason not to serve:
// control planes name one before they have made it.
func (a *app) statsMapping() (*stats.Mapping, error) {
	path := a.config.Metrics.MapperFile
	if path == "" {
		return stats.DefaultMapping(), nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		a.logger.Warn("metrics.mapper_file does not exist: the statistics have the names that envoyproxy/ratelimit gives them", "path", path)
		return stats.DefaultMapping(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("metrics.mapper_file: %w", err)
	}
	mapping, err := stats.ParseMapping(text)
	if err != nil {
		return nil, fmt.Errorf("metrics.mapper_file: %s: %w", path, err)
	}
	return mapping, nil
}

// sendStats flushes the statistics until the server has shut down.
func (a *app) sendStats() error {
	settings := &a.config.Statsd
	options := stats.ClientOptions{Tags: settings.Tags}
	options.Network, options.Address = settings.Target()
	if settings.Dialect == config.DialectDogStatsD {
		options.Dialect = stats.DogStatsD
		options.Tags = append(datadogTags(), options.Tags...)
	}
	for _, text := range settings.Mogrifiers {
		mogrifier, err := stats.ParseMogrifier(text)
		if err != nil {
			return fmt.Errorf("statsd.mogrifiers: %w", err)
		}
		options.Mogrifiers = append(options.Mogrifiers, mogrifier)
	}
	client := stats.NewClient(options)
	a.metrics.Registerer().MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "weir_statsd_lines_lost_total", Help: "Lines that the statsd server did not take.",
	}, func() float64 { return float64(client.Lost()) }))
	flusher := a.stats.NewFlusher(client)
	ctx, stop := context.WithCancel(context.Background())
	var flushing sync.WaitGroup
	flushing.Go(func() { flusher.Run(ctx, settings.FlushInterval) })
	a.cleanup.add(func() {
		stop()
		flushing.Wait()
		_ = client.Close()
	})
	return nil
}

// datadogTags are the tags that Datadog's agents and clients take from the environment.
func datadogTags() []string {
	var tags []string
	for _, each := range []struct{ variable, tag string }{
		{"DD_ENTITY_ID", "dd.internal.entity_id"}, {"DD_ENV", "env"}, {"DD_SERVICE", "service"}, {"DD_VERSION", "version"},
	} {
		if value := os.Getenv(each.variable); value != "" {
			tags = append(tags, each.tag+":"+value)
		}
	}
	return tags
}

// rulesObserver is told what becomes of the rules.
func (a *app) rulesObserver() ruleset.Observer {
	if a.stats == nil {
		return a.metrics
	}
	return observedRules{a.metrics, a.stats}
}

// observedRules tells the statistics too.
type observedRules struct {
	*telemetry.Metrics
	stats *stats.Stats
}

// RulesLoaded implements ruleset.Observer.
func (o observedRules) RulesLoaded() {
	o.Metrics.RulesLoaded()
	o.stats.RulesLoaded()
}

// RulesRefused implements ruleset.Observer.
func (o observedRules) RulesRefused() {
	o.Metrics.RulesRefused()
	o.stats.RulesRefused()
}

// RulesInForce implements ruleset.Observer.
func (o observedRules) RulesInForce(rules []*ratelimit.Rule, hash string) {
	o.Metrics.RulesInForce(rules, hash)
	o.stats.RulesInForce(rules)
}

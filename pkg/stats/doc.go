// Package stats keeps the statistics of envoyproxy/ratelimit, by its names, so that dashboards and alerts that were made for it
// go on working: a name with dots for each rule and each counter, as in
// ratelimit.service.rate_limit.DOMAIN.KEY_VALUE.total_hits. Counters of rules sum up costs, not calls.
//
// Stats counts and lists them (Each). Flusher sends what they grew by to a statsd or DogStatsD server, Collector shows them to
// Prometheus under the names that a statsd_exporter mapping gives them. Neither is ever in the way of a decision.
//
// The number of names is bounded: a rule's name is as the operator wrote it, a name that holds values of requests
// (value_to_metric, detailed_metric, a wildcard in a key, a limit that the caller sent, an unknown domain) is one of at most
// Options.MaxValues of its rule or kind; what is beyond is counted by the rule's name without values, or as "other".
package stats

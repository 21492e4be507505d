package rules

import "slices"

// The fields of the format, in the order in which messages list them.
//
// If you add one, also read it in the parser, describe it in config/rules.schema.json, and add a testdata file; a test
// compares these lists with the schema.
var (
	domainFields     = []string{"domain", "name", "default", "descriptors", "rules"}
	descriptorFields = []string{
		"key", "value", "match", "id", "name", "rate_limit", "limits", "lease", "action", "priority", "descriptors",
		"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata", "on_store_failure", "enabled",
	}
	matchFields     = []string{"cidr", "prefix", "suffix", "glob", "regex"}
	rateLimitFields = []string{"unit", "unit_multiplier", "requests_per_unit", "unlimited", "name", "replaces"}
	replacesFields  = []string{"name"}
	limitFields     = []string{"algorithm", "limit", "window", "burst", "rate", "timezone", "kind", "name"}
	leaseFields     = []string{"max", "ttl"}
	inlineFields    = []string{"algorithm", "limit", "window", "burst", "rate", "timezone", "kind"}
	defaultFields   = []string{
		"id", "name", "rate_limit", "limits", "lease", "action",
		"shadow_mode", "quota_mode", "detailed_metric", "metadata", "on_store_failure", "enabled",
	}
	ruleFields = slices.Concat([]string{"scope", "identifier"}, inlineFields, []string{
		"id", "name", "limits", "lease", "action", "priority",
		"shadow_mode", "quota_mode", "detailed_metric", "value_to_metric", "share_threshold", "metadata", "on_store_failure", "enabled",
	})
)

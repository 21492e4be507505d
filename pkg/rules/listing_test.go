package rules

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestListing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edge.yaml")
	write(t, path, `domain: edge/one
descriptors:
  - key: generic_key
    value: slow
    rate_limit: {unit: minute, requests_per_unit: 10}
    shadow_mode: true
    descriptors:
      - key: remote_address
        rate_limit: {unit: second, requests_per_unit: 1}
        quota_mode: true
  - key: path
    value: /api/*
    rate_limit: {unit: day, requests_per_unit: 7}
  - key: free
    rate_limit: {unlimited: true}
  - key: bucket
    limits: [{algorithm: token_bucket, limit: 5, window: 90s}]
  - key: banned
    action: deny
---
domain: another
default: {limits: [{algorithm: fixed_window, limit: 3, window: 1h}]}
`)
	table, err := Load([]string{path}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := `another.default: unit=HOUR requests_per_unit=3, shadow_mode: false, quota_mode: false
edge/one.banned: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, action: deny
edge/one.bucket: unit=90 requests_per_unit=5, shadow_mode: false, quota_mode: false, algorithm: token_bucket
edge/one.free: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false, unlimited: true
edge/one.generic_key_slow.remote_address: unit=SECOND requests_per_unit=1, shadow_mode: false, quota_mode: true
edge/one.generic_key_slow: unit=MINUTE requests_per_unit=10, shadow_mode: true, quota_mode: false
edge/one.path_/api/*: unit=DAY requests_per_unit=7, shadow_mode: false, quota_mode: false`
	if got := strings.Join(table.Listing(), "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

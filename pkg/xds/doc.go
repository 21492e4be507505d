// Package xds follows a control plane that gives rules by xDS, as envoyproxy/ratelimit does: aggregated discovery, state of the world,
// resources of the type [TypeURL], one for each domain. Envoy Gateway and Envoy AI Gateway are such control planes.
//
// Each response holds all rules and replaces those before it. It is compiled by package rules, through the same definitions as rule
// files, so a rule means the same wherever it comes from. A response that cannot be compiled as a whole is refused with a NACK that
// says why, and the rules before it stay; so they do when the stream breaks. Only what has changed since the response before is
// read and compiled.
//
// Each stream begins without a version: the control plane sends all that it has. A version from the stream before might, after a
// restart of the control plane, be that of other rules, which it would then keep to itself.
//
// The stream is spoken through the generated stub of aggregated discovery rather than through go-control-plane's
// pkg/client/sotw/v3, which keeps the version_info and the type_url of responses to itself, sends the version of the stream
// before when it connects anew, and gives a NACK no status code.
package xds

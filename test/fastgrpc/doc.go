// Package fastgrpc holds the tests of the fast front against foreign programs: h2spec, other clients, a real Envoy, and
// grpc-go as the oracle.
package fastgrpc

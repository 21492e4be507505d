// Package envoy answers envoy.service.ratelimit.v3.RateLimitService with the decisions of package engine.
//
// It reads and writes the protocol's messages itself. Envoy sends header values as the bytes that a client chose; the
// generated types refuse a message that holds one byte which is not UTF-8, Envoy then lets the request pass, and none of its
// descriptors is counted. Here keys and values are bytes. Reading and writing also leave no garbage, which the generated
// types cannot.
//
// Service.Serve works on a batch of serialized calls and is what every front calls: Register is the one for grpc-go, whose
// batches have one call.
package envoy

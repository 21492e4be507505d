// Package fastgrpc is an HTTP/2 server for unary gRPC methods with small messages.
//
// A goroutine per connection reads what has arrived, decodes all calls in it, has them handled together, and writes all
// answers in one write. No goroutine, timer, context or metadata map is made per call. A method is a function over a batch
// of calls.
//
// A handler that waits, for a store for example, keeps its connection from reading; a watch that runs in the background
// gives the reading to another goroutine once that takes longer than a moment. It says so before it waits (Wait), and what it has
// answered by then is sent. Up to maxFlights batches of a connection may wait; calls that would have to wait beyond that do so in
// a queue, and those that are cancelled there are never handled. Calls that need not wait are answered at any time.
//
// Everything a peer can make the server hold, do or wait for is bounded, see Options. Streaming methods, compression and
// metadata are left to other servers: such calls are answered UNIMPLEMENTED or have what they carry ignored.
//
// Sources: RFC 9113 (HTTP/2), RFC 7541 (HPACK), and gRPC over HTTP2.
package fastgrpc

package envoy

// What one request may hold. A request with more is refused as an invalid argument. Envoy makes one descriptor for each
// matching entry of a route's rate_limits, and one entry for each of its actions, so real requests are far below.
const (
	MaxDescriptors = 1000 // in a request
	MaxEntries     = 100  // in a descriptor
)

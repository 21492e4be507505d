package telemetry

import (
	"time"

	"google.golang.org/grpc/codes"
)

// Method counts the calls of one method, for a server without interceptors. It is safe for concurrent use.
type Method struct{ metrics *methodMetrics }

// Methods returns what counts the calls of methods, by their path. They are the same series as an interceptor's.
func (m *Metrics) Methods(paths ...string) map[string]Method {
	methods := make(map[string]Method, len(paths))
	for _, path := range paths {
		methods[path] = Method{m.grpc.method(path)}
	}
	return methods
}

// Ended counts a call that has ended, elapsed after it arrived.
func (m Method) Ended(code codes.Code, elapsed time.Duration) {
	m.metrics.duration.Observe(elapsed.Seconds())
	m.metrics.count(code)
}

package kong_test

import (
	"testing"

	"github.com/weirhq/weir/test/kong"
)

// BenchmarkAccess is an event with two calls, over the real socket, by as many workers as there are cores: Kong's part is
// played by Go.
func BenchmarkAccess(b *testing.B) {
	for name, values := range map[string]map[string]any{
		"embedded": {"mode": "embedded", "limit_by": "ip", "minute": 1 << 30},
		"denied":   {"mode": "embedded", "limit_by": "ip", "year": 1, "error_format": "json"},
	} {
		b.Run(name, func(b *testing.B) {
			node := kong.Start(b, 1)
			config := kong.Configure("bench", values)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					response, err := node.Workers[0].Access(config, &kong.Request{IP: "192.0.2.1"})
					if err != nil {
						b.Error(err)
						return
					}
					response.Finish()
				}
			})
		})
	}
}

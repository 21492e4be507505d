package respond_test

import (
	"testing"

	"github.com/weirhq/weir/pkg/respond"
)

func BenchmarkAppend(b *testing.B) {
	d := respond.Decision{Denied: true, Limits: []respond.Limit{perMinute, perDay, denied}}
	for _, style := range []respond.Style{respond.XRateLimit, respond.Envoy, respond.Draft03, respond.Kong, respond.IETF} {
		formatter, err := respond.New(respond.Options{Styles: style})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(style.String(), func(b *testing.B) {
			b.ReportAllocs()
			headers := make([]respond.Header, 0, 16)
			for b.Loop() {
				headers = formatter.Append(headers[:0], &d, now)
			}
		})
	}
}

func BenchmarkProblem(b *testing.B) {
	d := respond.Decision{Denied: true, Limits: []respond.Limit{perMinute, perDay, denied}}
	body, buf := respond.Body{RequestID: "4f9c"}, make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = body.Append(buf[:0], respond.ProblemJSON, &d)
	}
}

// TestAppendAllocatesOnce: one allocation for all values of a style.
func TestAppendAllocatesOnce(t *testing.T) {
	d := respond.Decision{Denied: true, Limits: []respond.Limit{perMinute, perDay, denied}}
	for _, style := range []respond.Style{respond.XRateLimit, respond.Envoy, respond.Draft03, respond.Kong, respond.IETF} {
		formatter, err := respond.New(respond.Options{Styles: style})
		if err != nil {
			t.Fatal(err)
		}
		headers := make([]respond.Header, 0, 32)
		if got := testing.AllocsPerRun(100, func() { headers = formatter.Append(headers[:0], &d, now) }); got > 1 {
			t.Errorf("%v: %v allocations, want 1", style, got)
		}
	}
}

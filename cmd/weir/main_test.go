package main

import (
	"slices"
	"testing"
)

// A binary that is called ratelimit, by whatever path, is envoyproxy/ratelimit's to those who start it.
func TestArguments(t *testing.T) {
	for _, c := range []struct{ line, want []string }{
		{[]string{"/bin/ratelimit"}, []string{"ratelimit"}},
		{[]string{"ratelimit", "--set", "log.level=debug"}, []string{"ratelimit", "--set", "log.level=debug"}},
		{[]string{"/weir", "serve"}, []string{"serve"}},
		{[]string{"weir-ratelimit"}, []string{}},
		{nil, nil},
	} {
		if got := arguments(c.line); !slices.Equal(got, c.want) {
			t.Errorf("%q becomes %q, want %q", c.line, got, c.want)
		}
	}
}

package nearest

import (
	"strings"
	"testing"
)

func TestName(t *testing.T) {
	known := []string{"url", "pool_size", "timeout_ms", "password", "password_file", "mode", "addrs"}
	for name, want := range map[string]string{
		"pool_sise": "pool_size", "poolSize": "pool_size", "POOL-SIZE": "pool_size", "timeout": "timeout_ms", "passwd": "password",
		"uri": "url", "urls": "url", "mdoe": "mode", "adrs": "addrs", "zzz": "", "": "", strings.Repeat("x", 1000): "",
		"password_fiel": "password_file",
	} {
		if got := Name(name, known); got != want {
			t.Errorf("%.20q: got %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"same", "same", 0}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "acbd", 1},
	}
	for _, test := range tests {
		if got := distance(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: %d, want %d", test.a, test.b, got, test.want)
		}
		if got := distance(test.b, test.a); got != test.want {
			t.Errorf("%q to %q: %d, want %d", test.b, test.a, got, test.want)
		}
	}
}

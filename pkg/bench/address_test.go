package bench

import (
	"strings"
	"testing"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		text, want, authority string
		loopback              bool
	}{
		{"127.0.0.1:50051", "127.0.0.1:50051", "127.0.0.1:50051", true},
		{"[::1]:1", "[::1]:1", "[::1]:1", true},
		{"localhost:1", "localhost:1", "localhost:1", true},
		{"127.8.9.10:1", "127.8.9.10:1", "127.8.9.10:1", true},
		{"192.0.2.1:1", "192.0.2.1:1", "192.0.2.1:1", false},
		{"0.0.0.0:1", "0.0.0.0:1", "0.0.0.0:1", false},
		{"[2001:db8::1]:1", "[2001:db8::1]:1", "[2001:db8::1]:1", false},
		{"unix:weir.sock", "unix:weir.sock", "localhost", true},
		{"unix:/run/weir.sock", "unix:/run/weir.sock", "localhost", true},
		{"unix:///run/weir.sock", "unix:/run/weir.sock", "localhost", true},
	} {
		address, err := ParseAddress(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		loopback, err := address.Loopback(t.Context())
		if err != nil || loopback != c.loopback || address.String() != c.want || address.authority() != c.authority {
			t.Errorf("%s is %s, authority %s, loopback %v (%v)", c.text, address, address.authority(), loopback, err)
		}
	}
	for _, text := range []string{"", "localhost", ":50051", "localhost:", "unix:", "unix://", "a:b:c", "http://localhost:1/"} {
		if address, err := ParseAddress(text); err == nil {
			t.Errorf("%q is taken for %s", text, address)
		} else if !strings.Contains(err.Error(), "write") {
			t.Errorf("%q: the error does not say what to write: %v", text, err)
		}
	}
}

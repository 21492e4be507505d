package bench

import (
	"context"
	"fmt"
	"net"
	"strings"
)

// Address is where a server listens.
type Address struct {
	network, address string
}

// ParseAddress reads host:port or unix:PATH.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if rest, absolute := strings.CutPrefix(path, "//"); absolute {
			path = rest // unix:///path, gRPC's form for absolute paths
		}
		if path == "" {
			return Address{}, fmt.Errorf("address %q has no path: write unix:PATH", text)
		}
		return Address{"unix", path}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return Address{}, fmt.Errorf("address %q is not one: write host:port or unix:PATH", text)
	}
	return Address{"tcp", text}, nil
}

// String is host:port or unix:PATH.
func (a Address) String() string {
	if a.network == "unix" {
		return "unix:" + a.address
	}
	return a.address
}

// Unix tells whether this is a unix socket.
func (a Address) Unix() bool { return a.network == "unix" }

// Loopback tells whether the address is on this machine for certain: a unix socket, or a host all of whose addresses are
// loopback addresses.
func (a Address) Loopback(ctx context.Context) (bool, error) {
	if a.Unix() {
		return true, nil
	}
	host, _, err := net.SplitHostPort(a.address)
	if err != nil {
		return false, err
	}
	found, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, fmt.Errorf("address %q: %w", a.address, err)
	}
	for _, ip := range found {
		if !ip.IP.IsLoopback() {
			return false, nil
		}
	}
	return len(found) > 0, nil
}

// authority is what HTTP/2 calls the host.
func (a Address) authority() string {
	if a.Unix() {
		return "localhost"
	}
	return a.address
}

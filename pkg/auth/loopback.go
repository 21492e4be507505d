package auth

import (
	"net"
	"net/netip"
	"strings"
)

// IsLoopback reports whether what listens on an address can be reached from this machine only: a unix socket ("unix:..." or
// a path), a loopback address or localhost, each with or without a port. An empty host, which listens everywhere, is not.
//
// It serves for an HTTP request's Host as well: a server without authentication that also checks this cannot be reached by
// a web page that has its own name resolve to 127.0.0.1.
func IsLoopback(address string) bool {
	if strings.HasPrefix(address, "unix:") || strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@") {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]")
	}
	if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

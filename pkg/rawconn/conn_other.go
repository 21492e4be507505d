//go:build !linux || !(amd64 || arm64)

package rawconn

import "net"

// New returns the connection as it is.
func New(from net.Conn) net.Conn { return from }

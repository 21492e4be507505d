//go:build !linux

package redisstore

import "net"

// direct returns the connection as it is.
func direct(from net.Conn) (net.Conn, error) { return from, nil }

// Package proto holds the protocol buffers of weir's own API, by the paths of their packages.
package proto

//go:generate go -C .. tool -modfile=tools/buf/go.mod buf generate

// Package dropin tests weir in the place of envoyproxy/ratelimit: the real binary, started under its name and with its environment,
// and the examples for those who run it so.
package dropin

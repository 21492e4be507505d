package client

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AddressOptions say how ByAddress finds a client's address. The zero value takes the other end of the connection.
type AddressOptions struct {
	// TrustedProxies are the addresses ("10.1.2.3") and networks ("10.0.0.0/8") of the proxies before the service, and "unix"
	// for those that connect by a unix socket. What an address that is not listed says of others is ignored.
	TrustedProxies []string
	// Header is the one field in which these proxies add the address that they were called from: "X-Forwarded-For" or
	// "Forwarded" (RFC 7239). Defaults to X-Forwarded-For. The other field is ignored: a client could write what it likes
	// into the field that no proxy takes care of.
	Header string
	// IPv6Prefix is how many leading bits of an IPv6 address count: one subscriber has 64 free bits and could else use as
	// many addresses. 1 to 128; 0: 64.
	IPv6Prefix int
}

// ErrAddressOptions is wrapped by every error of ByAddress.
var ErrAddressOptions = errors.New("invalid address settings")

const (
	forwardedFor = "X-Forwarded-For"
	forwarded    = "Forwarded"

	// maxHops bounds how many addresses are looked at, from the right. Beyond it the last one that was seen is taken.
	maxHops = 32
	// maxForwarded bounds what is parsed of one Forwarded field, in bytes.
	maxForwarded = 8 << 10
)

// ByAddress counts by the client's address: the rightmost one that is not a trusted proxy's, in the words of the trusted
// proxies. An address that they give as unknown or obfuscated, or that cannot be read, ends the search, and the proxy that
// said so is counted. IPv6 addresses are counted by their network ("2001:db8::/64").
func ByAddress(options AddressOptions) (KeyFunc, error) {
	a := addresses{bits: options.IPv6Prefix}
	if a.bits == 0 {
		a.bits = 64
	}
	if a.bits < 1 || a.bits > 128 {
		return nil, fmt.Errorf("%w: IPv6Prefix %d is out of range: write 1 to 128, or 0 for 64", ErrAddressOptions, options.IPv6Prefix)
	}
	switch {
	case options.Header == "" || strings.EqualFold(options.Header, forwardedFor):
		a.header = forwardedFor
	case strings.EqualFold(options.Header, forwarded):
		a.header = forwarded
	default:
		return nil, fmt.Errorf("%w: header %q: write %s or %s", ErrAddressOptions, options.Header, forwardedFor, forwarded)
	}
	for _, text := range options.TrustedProxies {
		if text == "unix" {
			a.unix = true
			continue
		}
		network, err := parseNetwork(text)
		if err != nil {
			return nil, fmt.Errorf("%w: trusted proxy %q: write an address, a network such as 10.0.0.0/8, or unix", ErrAddressOptions, text)
		}
		a.trusted = append(a.trusted, network)
	}
	return a.key, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		address = address.Unmap()
		return netip.PrefixFrom(address, address.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if network.Addr().Is4In6() {
		if network.Bits() < 96 {
			return netip.Prefix{}, errors.New("a network of mapped IPv4 addresses is written as IPv4")
		}
		return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96).Masked(), nil
	}
	return network.Masked(), nil
}

type addresses struct {
	trusted []netip.Prefix
	unix    bool
	header  string
	bits    int
}

func (a *addresses) key(c *Call) (string, error) {
	address, ok := a.client(c)
	if !ok {
		return "", fmt.Errorf("%w: no client address behind %q", ErrNoKey, c.Peer())
	}
	if address.Is6() && a.bits < 128 {
		network, err := address.Prefix(a.bits)
		if err != nil {
			return "", err
		}
		return network.String(), nil
	}
	return address.String(), nil
}

func (a *addresses) client(c *Call) (client netip.Addr, ok bool) {
	switch client, ok = parseHop(c.Peer()); {
	case ok && !a.isTrusted(client):
		return client, true
	case !ok && (!a.unix || !isUnix(c.Peer())):
		return netip.Addr{}, false
	}
	// From here on client is a trusted proxy, or not valid if that is a unix socket.
	for hop, good := range a.hops(c) {
		if !good {
			break
		}
		client, ok = hop, true
		if !a.isTrusted(hop) {
			break
		}
	}
	return client, ok
}

// hops yields the addresses that proxies have added, the last one first, at most maxHops. false stands for one that cannot be
// read, and ends it.
func (a *addresses) hops(c *Call) func(yield func(netip.Addr, bool) bool) {
	return func(yield func(netip.Addr, bool) bool) {
		left := maxHops
		for _, line := range slices.Backward(c.Header(a.header)) {
			for element, ok := range a.elements(line) {
				var hop netip.Addr
				if ok {
					hop, ok = parseHop(element)
				}
				if left == 0 || !yield(hop, ok) || !ok {
					return
				}
				left--
			}
		}
	}
}

// elements yields the parts of one field line that are to be addresses, the last one first.
func (a *addresses) elements(line string) func(yield func(string, bool) bool) {
	if a.header == forwarded {
		return forwardedElements(line)
	}
	return func(yield func(string, bool) bool) {
		for line != "" {
			comma := strings.LastIndexByte(line, ',')
			element := strings.Trim(line[comma+1:], " \t")
			line = line[:max(comma, 0)]
			if element == "" {
				continue // RFC 9110, section 5.6.1: empty elements of a list do not count
			}
			if !yield(element, true) {
				return
			}
		}
	}
}

func (a *addresses) isTrusted(address netip.Addr) bool {
	for _, network := range a.trusted {
		if network.Contains(address) {
			return true
		}
	}
	return false
}

// isUnix reports whether the other end of a connection is a unix socket: it has no name, or that of its file.
func isUnix(peer string) bool {
	return peer == "" || peer[0] == '@' || peer[0] == '/'
}

// parseHop reads an address with or without a port: 1.2.3.4, 1.2.3.4:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80.
func parseHop(text string) (netip.Addr, bool) {
	if len(text) > 64 {
		return netip.Addr{}, false
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		if inner, ok := strings.CutPrefix(text, "["); ok && strings.HasSuffix(inner, "]") {
			address, err = netip.ParseAddr(strings.TrimSuffix(inner, "]"))
			if err == nil && !address.Is6() {
				return netip.Addr{}, false
			}
		} else {
			var port netip.AddrPort
			port, err = netip.ParseAddrPort(text)
			address = port.Addr()
		}
	}
	if err != nil {
		return netip.Addr{}, false
	}
	return address.Unmap().WithZone(""), true
}

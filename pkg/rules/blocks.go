package rules

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
)

// blocks finds the CIDR block of the lowest rank that holds an address.
//
// Blocks are nested or disjoint, so the address space falls into stretches in which one answer holds. They are computed once;
// a lookup is a binary search.
type blocks struct {
	v4, v6 []stretch
}

// stretch begins at an address and ends where the next one begins.
type stretch struct {
	start netip.Addr
	rank  int32 // unranked: in no block
}

type block struct {
	prefix netip.Prefix // masked, and not of an IPv4-mapped address
	rank   int32
}

// newBlocks also reports the pairs of blocks of which the first can never match, because the second lies around it
// and has a lower rank.
func newBlocks(all []block, covered func(inner, outer int32)) blocks {
	var b blocks
	slices.SortFunc(all, func(x, y block) int {
		return cmp.Or(x.prefix.Addr().Compare(y.prefix.Addr()), cmp.Compare(x.prefix.Bits(), y.prefix.Bits()))
	})
	v6 := slices.IndexFunc(all, func(x block) bool { return x.prefix.Addr().Is6() })
	if v6 < 0 {
		v6 = len(all)
	}
	b.v4, b.v6 = stretches(all[:v6], covered), stretches(all[v6:], covered)
	return b
}

// stretches sweeps over one family's blocks, outer ones first.
func stretches(all []block, covered func(inner, outer int32)) []stretch {
	type open struct {
		end  netip.Addr // the first address after the block; invalid where the family ends
		rank int32      // the lowest of this block and those around it
	}
	var (
		result []stretch
		around []open
	)
	emit := func(start netip.Addr, rank int32) {
		if last := len(result) - 1; last >= 0 && result[last].start == start {
			result[last].rank = rank
			return
		}
		result = append(result, stretch{start, rank})
	}
	closeUntil := func(next netip.Addr) {
		for len(around) > 0 {
			top := around[len(around)-1]
			if !top.end.IsValid() || (next.IsValid() && next.Less(top.end)) {
				return
			}
			around = around[:len(around)-1]
			rank := unranked
			if len(around) > 0 {
				rank = around[len(around)-1].rank
			}
			emit(top.end, rank)
		}
	}
	for _, each := range all {
		closeUntil(each.prefix.Addr())
		rank := each.rank
		if len(around) > 0 {
			if outer := around[len(around)-1].rank; outer < rank {
				covered(rank, outer)
				rank = outer
			}
		}
		emit(each.prefix.Addr(), rank)
		around = append(around, open{lastOf(each.prefix).Next(), rank})
	}
	closeUntil(netip.Addr{})
	return result
}

// lastOf returns the last address of a block.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes)
	return last
}

func (b *blocks) find(value string) int32 {
	addr, ok := parseAddr(value)
	if !ok {
		return unranked
	}
	family := b.v6
	if addr.Is4() {
		family = b.v4
	}
	after := sort.Search(len(family), func(i int) bool { return addr.Less(family[i].start) })
	if after == 0 {
		return unranked
	}
	return family[after-1].rank
}

// parseAddr reads an IP address as gateways send it. An IPv4 address written as IPv6 is the IPv4 address; a zone does not
// count. It first looks whether the value can be an address at all, because netip's error costs an allocation.
func parseAddr(value string) (netip.Addr, bool) {
	dots, colons := 0, 0
	for i := range len(value) {
		switch c := value[i]; {
		case c == '.':
			dots++
		case c == ':':
			colons++
		case c == '%' && colons >= 2 && i+1 < len(value): // a zone
			return parsePlainAddr(value[:i])
		case c >= '0' && c <= '9', c >= 'a' && c <= 'f', c >= 'A' && c <= 'F':
		default:
			return netip.Addr{}, false
		}
	}
	if dots != 3 && colons < 2 {
		return netip.Addr{}, false
	}
	return parsePlainAddr(value)
}

const longestAddr = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255")

func parsePlainAddr(value string) (netip.Addr, bool) {
	if len(value) > longestAddr {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(value)
	return addr.Unmap(), err == nil
}

// singleBlock is a block by itself.
type singleBlock struct{ netip.Prefix }

func (b singleBlock) match(value string) bool {
	addr, ok := parseAddr(value)
	return ok && b.Contains(addr)
}

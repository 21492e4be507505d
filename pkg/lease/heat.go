package lease

const (
	// hot is how many hits in one TTL make a counter busy.
	hot = 4
	// slots is how many counters of a shard may be found busy at a time.
	slots = 64
)

// heat finds the busy ones among any number of counters in little memory. In each slot one counter is a candidate: its own hits
// count for it, the hits of others that fall into the slot against it (the majority vote of Boyer and Moore).
type heat [slots]struct {
	period uint32 // the TTL in which it was counted
	mark   uint32 // of the candidate's key
	hits   uint32
}

// hit counts a hit of the counter with this hash, and reports whether it is a busy one.
func (h *heat) hit(hash uint64, period int64) bool {
	slot, mark := &h[hash>>8%slots], uint32(hash>>32)
	switch {
	case slot.period != uint32(period) || slot.hits == 0:
		slot.period, slot.mark, slot.hits = uint32(period), mark, 1
	case slot.mark == mark:
		slot.hits++
	default:
		slot.hits--
	}
	return slot.mark == mark && slot.hits >= hot
}

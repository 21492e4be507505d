package memstore

// The entries in use form a ring by their last use, closed by entry none: following older from it leads from the most
// recently used entry to the least recently used one.

func (s *shard) newest() ref { return s.at(none).older }

func (s *shard) oldest() ref { return s.at(none).newer }

// link makes an entry the most recently used one.
func (s *shard) link(r ref, e *entry) {
	head := s.at(none)
	e.newer, e.older = none, head.older
	s.at(head.older).newer = r
	head.older = r
}

// unlink takes an entry out of the ring.
func (s *shard) unlink(e *entry) {
	s.at(e.newer).older, s.at(e.older).newer = e.older, e.newer
}

// mostRemoved is how many keys one call removes to make room, so that it does not take long when a log that grew weighs
// as much as many keys. The calls after it go on.
const mostRemoved = 128

// makeRoom removes keys while the store holds too much: dead ones if some are found at once, else the least recently used
// ones. It does not remove the most recently used one, which is the one that room is needed for; where it is the only one
// of its shard, the next key of another shard makes the room.
func (s *shard) makeRoom(now int64) {
	for range mostRemoved {
		if s.usage.weight.Load() <= s.usage.limit {
			return
		}
		if s.sweep(now, probes) > 0 {
			continue
		}
		r := s.oldest()
		if r == s.newest() {
			return
		}
		if s.at(r).expires <= now {
			s.usage.expirations.Add(1)
		} else {
			s.usage.evictions.Add(1)
		}
		s.remove(r)
	}
}

package redisstore

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// maxHits is how many hits of one caller are one run of the script, if they are of several charges: about 3 ms of Redis.
	maxHits = 1000
	// maxChargeHits is how many hits one charge may have. They are one run of the script, because they are all or nothing.
	maxChargeHits = 10_000
	// maxSameLimit is how far back a limit is sought in the table of limits before it is written again.
	maxSameLimit = 16
	// fewKeys is how many keys are compared one by one; more are looked up.
	fewKeys = 8
	// maxCost is what larger costs are cut to: above every limit, and small enough for a Lua number to add them up.
	maxCost = 1 << 50

	flagPartial = 1
	flagID      = 2
)

// request is one run of the script: the charges that it decides, and what is sent for them. It is used again and again.
type request struct {
	records []record
	hits    int // in the script's reply
	ids     int // charges with an ID in it

	keys   []string // KEYS, each once
	latest []int32  // for each of keys, the last of records that it is in; -1: none
	known  map[string]uint16
	limits []*ratelimit.Limit
	table  []byte // the limits, packed
	text   []byte // of keys that are made for this request
	groups []byte // the records, packed
	packed payload
	args   []any
	gives  bool // something back, which is to be announced
	envoy  envoyOptions
	// full sends the script itself, because Redis may not have it.
	full bool
	err  error // of the last time that it was sent
}

// record is a charge as the script sees it: one, or several that are the same and count as one hit that comes several times.
type record struct {
	first, last *charge
	times       int
	timesAt     int // where groups says how often
}

// payload is an argument that is written without being copied, and without memory of its own.
type payload []byte

func (p *payload) MarshalBinary() ([]byte, error) { return *p, nil }

func (r *request) reset() {
	clear(r.records)
	clear(r.keys)
	clear(r.limits)
	clear(r.args)
	if len(r.known) > maxHits {
		r.known = nil
	}
	clear(r.known)
	*r = request{
		records: r.records[:0], keys: r.keys[:0], latest: r.latest[:0], known: r.known, limits: r.limits[:0],
		table: r.table[:0], text: r.text[:0], groups: r.groups[:0], packed: r.packed[:0], args: r.args[:0],
	}
}

// add appends a charge, which has hits.
//
// A charge of one hit is merged with the latest one that its key is in, if the two are the same: the script is told how
// often it comes, and share tells the results of each. Charges in between are of other keys, and do not notice.
func (r *request) add(c *charge, now time.Time) {
	hit := &c.hits[0]
	key := r.key(r.name(hit, now))
	if at := r.latest[key]; at >= 0 && r.records[at].takes(c) {
		same := &r.records[at]
		same.last.next = c
		same.last = c
		same.times++
		binary.LittleEndian.PutUint16(r.groups[same.timesAt:], uint16(same.times))
		return
	}
	r.latest[key] = int32(len(r.records))
	r.groups = binary.LittleEndian.AppendUint16(r.groups, uint16(len(c.hits)))
	r.groups = append(r.groups, flags(c))
	r.records = append(r.records, record{first: c, last: c, times: 1, timesAt: len(r.groups)})
	r.groups = binary.LittleEndian.AppendUint16(r.groups, 1)
	r.hit(hit, key, now)
	if c.idKey != "" {
		r.groups = binary.LittleEndian.AppendUint16(r.groups, r.key(c.idKey))
		r.groups = append(r.groups, c.mark[:]...)
		r.ids++
	}
	for i := 1; i < len(c.hits); i++ {
		hit := &c.hits[i]
		key := r.key(r.name(hit, now))
		r.latest[key] = int32(len(r.records)) - 1
		r.hit(hit, key, now)
	}
	r.hits += len(c.hits)
}

func (r *request) hit(hit *ratelimit.Hit, key uint16, now time.Time) {
	limit := r.limit(hit.Limit, now)
	r.groups = binary.LittleEndian.AppendUint16(r.groups, key)
	r.groups = binary.LittleEndian.AppendUint16(r.groups, limit)
	r.groups = appendNumber(r.groups, min(max(hit.Cost, -maxCost), maxCost))
	r.gives = r.gives || hit.Cost < 0
}

// takes reports whether c is the same as the record's charges, so that it counts as coming once more.
func (r *record) takes(c *charge) bool {
	a, b := r.first, c
	return len(a.hits) == 1 && len(b.hits) == 1 && a.idKey == "" && b.idKey == "" && a.hits[0].Cost > 0 && r.times < math.MaxUint16 &&
		a.hits[0].Cost == b.hits[0].Cost && a.hits[0].Limit == b.hits[0].Limit && a.hits[0].Partial == b.hits[0].Partial
}

func flags(c *charge) byte {
	var flags byte
	if len(c.hits) == 1 && c.hits[0].Partial {
		flags |= flagPartial
	}
	if c.idKey != "" {
		flags |= flagID
	}
	return flags
}

// key returns the number of a key in KEYS.
func (r *request) key(key string) uint16 {
	if len(r.keys) <= fewKeys {
		for i := range r.keys {
			if r.keys[i] == key {
				return uint16(i)
			}
		}
	} else if i, ok := r.known[key]; ok {
		return i
	}
	n := len(r.keys)
	r.keys = append(r.keys, key)
	r.latest = append(r.latest, -1)
	switch {
	case n > fewKeys:
		r.known[key] = uint16(n)
	case n == fewKeys:
		if r.known == nil {
			r.known = make(map[string]uint16, maxBatch)
		}
		for i := range r.keys {
			r.known[r.keys[i]] = uint16(i)
		}
	}
	return uint16(n)
}

// limit returns the number of l in the table of limits. Hits mostly share a few; one that was not found among the last
// ones is written again, which costs bytes and changes nothing.
func (r *request) limit(l *ratelimit.Limit, now time.Time) uint16 {
	for i := len(r.limits) - 1; i >= max(0, len(r.limits)-maxSameLimit); i-- {
		if r.limits[i] == l {
			return uint16(i)
		}
	}
	r.limits = append(r.limits, l)
	if l.EnvoyKey {
		r.envoyLimit(l, now)
		return uint16(len(r.limits) - 1)
	}
	token, perMicro := l.Rate()
	r.table = append(r.table, byte(l.Algorithm))
	for _, n := range [...]int64{l.Count, l.Capacity(), l.Window.Microseconds(), token, perMicro} {
		r.table = appendNumber(r.table, n)
	}
	if l.Calendar == ratelimit.CalendarNone {
		r.table = append(r.table, 0)
		return uint16(len(r.limits) - 1)
	}
	r.table = append(r.table, 1)
	start, end := l.Bounds(now.UnixMicro())
	before, _ := l.Bounds(start - 1)
	_, next := l.Bounds(end)
	_, afterNext := l.Bounds(next)
	for _, edge := range [...]int64{before, start, end, next, afterNext} {
		r.table = appendNumber(r.table, edge)
	}
	return uint16(len(r.limits) - 1)
}

// appendNumber appends n, which is below 2^53 either way, as Lua holds it.
func appendNumber(dst []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(float64(n)))
}

// pack finishes what is sent once all charges are added. clock is when the call is decided; nil: by Redis's clock.
func (r *request) pack(clock *int64, o *Options) {
	r.packed = binary.LittleEndian.AppendUint16(r.packed[:0], uint16(len(r.limits)))
	r.packed = binary.LittleEndian.AppendUint16(r.packed, uint16(len(r.records)))
	r.packed = appendNumber(r.packed, o.IdempotencyTTL.Microseconds())
	r.packed = append(r.packed, r.table...)
	r.packed = append(r.packed, r.groups...)

	r.args = append(r.args[:0], "evalsha", "", len(r.keys))
	// Pointers, because a string in an interface has to be allocated.
	for i := range r.keys {
		r.args = append(r.args, &r.keys[i])
	}
	if clock == nil {
		r.args = append(r.args, "")
	} else {
		r.args = append(r.args, clock)
	}
	r.args = append(r.args, &r.packed)
	if r.gives && o.Channel != "" {
		r.args = append(r.args, &o.Channel)
	}
}

// command is the request as go-redis sends it. A request that Redis may have executed must not be sent again, whatever the
// client's settings.
type command struct{ *redis.IntSliceCmd }

func (command) NoRetry() bool { return true }

func (r *request) command(ctx context.Context, s *script) command {
	if r.full {
		r.args[0], r.args[1] = "eval", &s.source
	} else {
		r.args[0], r.args[1] = "evalsha", &s.digest
	}
	return command{redis.NewIntSliceCmd(ctx, r.args...)}
}

// finish gives each charge what came of it.
func (r *request) finish(reply []int64, err error) {
	if err == nil {
		err = r.decode(reply)
	}
	if err == nil {
		return
	}
	for i := range r.records {
		for c := r.records[i].first; c != nil; c = c.next {
			c.err = err
		}
	}
}

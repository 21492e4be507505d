package redisstore

import (
	"context"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	// maxHits is how many hits one run of the script decides, if they are of several charges: about 3 ms of Redis.
	maxHits = 1000
	// maxChargeHits is how many hits one charge may have. They are one run of the script, because they are all or nothing.
	maxChargeHits = 10_000
	// maxSameLimit is how far back a limit is sought in the table of limits before it is written again.
	maxSameLimit = 16
	// maxCost is what larger costs are cut to: above every limit, and small enough for a Lua number to add them up.
	maxCost = 1 << 50

	flagPartial = 1
	flagID      = 2
)

// request is one run of the script: the charges that it decides, and what is sent for them. It is used again and again.
type request struct {
	charges []*ratelimit.Charge
	hits    int

	keys   []string // KEYS: of hits
	ids    []string // KEYS: of IDs
	text   []byte   // memory of keys that are not the caller's
	limits []*ratelimit.Limit
	table  []byte // the limits, packed
	groups []byte // the charges, packed
	packed payload
	args   []any
	// full sends the script itself, because Redis may not have it.
	full bool
	err  error // of the last time that it was sent
}

// payload is an argument that is written without being copied, and without memory of its own.
type payload []byte

func (p *payload) MarshalBinary() ([]byte, error) { return *p, nil }

func (r *request) reset() {
	clear(r.charges)
	clear(r.keys)
	clear(r.ids)
	clear(r.limits)
	clear(r.args)
	*r = request{
		charges: r.charges[:0], keys: r.keys[:0], ids: r.ids[:0], text: r.text[:0], limits: r.limits[:0],
		table: r.table[:0], groups: r.groups[:0], packed: r.packed[:0], args: r.args[:0],
	}
}

// add appends a charge, which has hits. tagged says that keys are written as in a Cluster.
func (r *request) add(c *ratelimit.Charge, now time.Time, tagged bool) {
	r.charges = append(r.charges, c)
	r.hits += len(c.Hits)
	for i := range c.Hits {
		hit := &c.Hits[i]
		limit := r.limit(hit.Limit, now)
		if i == 0 {
			r.groups = binary.LittleEndian.AppendUint16(r.groups, uint16(len(c.Hits)))
			r.groups = append(r.groups, flags(c))
		}
		r.groups = binary.LittleEndian.AppendUint16(r.groups, limit)
		r.groups = appendNumber(r.groups, min(max(hit.Cost, -maxCost), maxCost))
		if i == 0 && c.ID != "" {
			r.groups = appendMark(r.groups, c.Hits)
		}
		if tagged {
			r.keys = append(r.keys, r.own(func(dst []byte) []byte { return appendTagged(dst, hit.Key) }))
		} else {
			r.keys = append(r.keys, hit.Key)
		}
	}
	if c.ID != "" {
		space := idSpace(c.Hits[0].Key)
		if tagged {
			space = tag(r.keys[len(r.keys)-len(c.Hits)])
		}
		r.ids = append(r.ids, r.own(func(dst []byte) []byte { return appendIDKey(dst, space, c.ID) }))
	}
}

func flags(c *ratelimit.Charge) byte {
	var flags byte
	if len(c.Hits) == 1 && c.Hits[0].Partial {
		flags |= flagPartial
	}
	if c.ID != "" {
		flags |= flagID
	}
	return flags
}

// own makes a string in the request's own memory.
func (r *request) own(write func(dst []byte) []byte) string {
	first := len(r.text)
	r.text = write(r.text)
	made := r.text[first:]
	return unsafe.String(unsafe.SliceData(made), len(made))
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
func (r *request) pack(clock *int64, idLifetime time.Duration) {
	r.packed = binary.LittleEndian.AppendUint16(r.packed[:0], uint16(len(r.limits)))
	r.packed = binary.LittleEndian.AppendUint16(r.packed, uint16(r.hits))
	r.packed = appendNumber(r.packed, idLifetime.Microseconds())
	r.packed = append(r.packed, r.table...)
	r.packed = append(r.packed, r.groups...)

	r.args = append(r.args[:0], "evalsha", "", len(r.keys)+len(r.ids))
	// Pointers, because a string in an interface has to be allocated.
	for i := range r.keys {
		r.args = append(r.args, &r.keys[i])
	}
	for i := range r.ids {
		r.args = append(r.args, &r.ids[i])
	}
	if clock == nil {
		r.args = append(r.args, "")
	} else {
		r.args = append(r.args, clock)
	}
	r.args = append(r.args, &r.packed)
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
		err = decode(reply, r.charges)
	}
	if err == nil {
		return
	}
	for _, c := range r.charges {
		c.Err = err
	}
}

// baseOf returns what the keys of all hits have in common, and false if they have not.
func baseOf(hits []ratelimit.Hit) (string, bool) {
	first := base(hits[0].Key)
	for i := 1; i < len(hits); i++ {
		if key := hits[i].Key; !strings.HasPrefix(key, first) || base(key) != first {
			return "", false
		}
	}
	return first, true
}

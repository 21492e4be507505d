package redisstore

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// Windows that are counted together with envoyproxy/ratelimit (ratelimit.Limit.EnvoyKey) have a key for each window, which
// ends with the window's start in seconds since the Unix epoch, by the clock of whoever counts, and holds a whole number. The
// script's part for them is scripts/envoy_window.lua.

// envoyAlgorithm is their number in the script, after those of ratelimit.Algorithms.
const envoyAlgorithm = 6

// maxEnvoyJitter bounds Options.EnvoyJitter.
const maxEnvoyJitter = 24 * time.Hour

// envoyOptions are those of Options that are about such windows.
type envoyOptions struct {
	jitter time.Duration
	stop   bool
}

func (o *Options) envoy() envoyOptions { return envoyOptions{o.EnvoyJitter, o.EnvoyStop} }

// name is the key of a hit's counter, in the request's memory if it has to be made.
func (r *request) name(hit *ratelimit.Hit, now time.Time) string {
	if !hit.Limit.EnvoyKey {
		return hit.Key
	}
	first := len(r.text)
	r.text = appendEnvoyName(r.text, hit, now)
	made := r.text[first:]
	return unsafe.String(unsafe.SliceData(made), len(made))
}

// appendEnvoyName appends the whole key of a counter: with the start of the window in which now lies.
func appendEnvoyName(dst []byte, hit *ratelimit.Hit, now time.Time) []byte {
	start, _ := hit.Limit.Bounds(now.UnixMicro())
	return strconv.AppendInt(append(dst, hit.Key...), start/1e6, 10)
}

// envoyLimit appends a limit to the table: what the algorithm needs of a window stands where others have the calendar's.
func (r *request) envoyLimit(l *ratelimit.Limit, now time.Time) {
	micros := now.UnixMicro()
	_, end := l.Bounds(micros)
	life := int64(l.Window / time.Second)
	if jitter := int64(r.envoy.jitter / time.Second); jitter > 0 {
		life += rand.Int64N(jitter) //nolint:gosec // spreads ends, guards no secret
	}
	overruns := int64(1)
	if r.envoy.stop {
		overruns = 0
	}
	r.table = append(r.table, envoyAlgorithm)
	for _, n := range [...]int64{l.Count, l.Count, l.Window.Microseconds(), 0, 0} {
		r.table = appendNumber(r.table, n)
	}
	r.table = append(r.table, 1)
	for _, n := range [...]int64{end - micros, life, overruns, 0, 0} {
		r.table = appendNumber(r.table, n)
	}
}

// envoyKey returns the key of the hits that are counted under a name, and whether it is that of such a window. No other name
// ends with an underscore and a number: weir's own end with a colon and the window.
func envoyKey(name string) (key string, ok bool) {
	key = strings.TrimRight(name, "0123456789")
	return key, len(key) < len(name) && strings.HasSuffix(key, "_")
}

// slotOf tells the slots of a Cluster apart: hits of which it is the same are in the same one.
func slotOf(hit *ratelimit.Hit, now time.Time) string {
	if hit.Limit.EnvoyKey {
		return string(appendEnvoyName(nil, hit, now))
	}
	return tag(hit.Key)
}

// sameSlot reports whether one run of the script can decide a charge in a Cluster. Keys of envoyproxy/ratelimit are in slots of
// their own, with no other key: neither a second hit nor what remembers an ID can be there.
func sameSlot(c *ratelimit.Charge) bool {
	for i := range c.Hits {
		if c.Hits[i].Limit.EnvoyKey {
			return len(c.Hits) == 1 && c.ID == ""
		}
	}
	return sameBase(c.Hits)
}

package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is what calls ask for.
type Kind string

// The kinds of workload.
const (
	Uniform Kind = "uniform" // one descriptor, its value one of many, all equally likely; always allowed
	Hot     Kind = "hot"     // one descriptor, always the same value; always allowed
	Over    Kind = "over"    // one descriptor that is over its limit
	Three   Kind = "three"   // three descriptors: the hot one and two different uniform ones; always allowed
)

// Kinds are all kinds, in the order in which help lists them.
func Kinds() []Kind { return []Kind{Uniform, Hot, Over, Three} }

const (
	// MaxKeys is the largest number of different values of a workload.
	MaxKeys = 100_000_000

	valueDigits = 8   // of a value, so that all requests are equally long
	maxName     = 128 // bytes of a domain or a key
)

// Workload is what is asked for. The rules that Rules returns fit the defaults.
type Workload struct {
	Kind Kind
	// Keys is the number of different values, 1 to MaxKeys. Hot has one whatever it says; Three needs two. 0: 100,000, and 1
	// for Over, a client that does not stop.
	Keys int
	// Domain is the requests' domain. Empty: "bench".
	Domain string
	// UniformKey, HotKey and OverKey are the keys of the descriptors' entries. Empty: "uniform", "hot" and "over".
	UniformKey, HotKey, OverKey string
}

func (w Workload) withDefaults() Workload {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set((*string)(&w.Kind), string(Uniform))
	set(&w.Domain, "bench")
	set(&w.UniformKey, "uniform")
	set(&w.HotKey, "hot")
	set(&w.OverKey, "over")
	switch {
	case w.Kind == Hot:
		w.Keys = 1
	case w.Keys != 0:
	case w.Kind == Over:
		w.Keys = 1
	default:
		w.Keys = 100_000
	}
	return w
}

// descriptors is how many descriptors a request has, and so how many statuses its reply must have.
func (w Workload) descriptors() int {
	if w.Kind == Three {
		return 3
	}
	return 1
}

// requests makes the serialized requests of a workload. All have one length, and a new one differs from the last in a few
// digits, so making one costs next to nothing. It is safe for concurrent use.
type requests struct {
	template []byte
	digits   []int // where in template the digits of each value begin that differs between requests
	keys     int
}

func newRequests(w Workload) (*requests, error) {
	for _, name := range []struct{ what, text string }{
		{"domain", w.Domain}, {"uniform key", w.UniformKey}, {"hot key", w.HotKey}, {"over key", w.OverKey},
	} {
		if name.text == "" || len(name.text) > maxName {
			return nil, fmt.Errorf("the %s has %d bytes: write 1 to %d", name.what, len(name.text), maxName)
		}
	}
	if w.Keys < 1 || w.Keys > MaxKeys {
		return nil, fmt.Errorf("%d keys: write 1 to %d", w.Keys, MaxKeys)
	}
	r := &requests{keys: w.Keys}
	r.template = protowire.AppendTag(r.template, 1, protowire.BytesType)
	r.template = protowire.AppendString(r.template, w.Domain)
	switch w.Kind {
	case Uniform:
		r.descriptor(w.UniformKey, true)
	case Hot:
		r.descriptor(w.HotKey, false)
	case Over:
		r.descriptor(w.OverKey, true)
	case Three:
		if w.Keys < 2 {
			return nil, errors.New("workload three needs 2 keys at least, for its two uniform descriptors")
		}
		r.descriptor(w.HotKey, false)
		r.descriptor(w.UniformKey, true)
		r.descriptor(w.UniformKey, true)
	default:
		return nil, fmt.Errorf("unknown workload %q: write one of %v", w.Kind, Kinds())
	}
	return r, nil
}

// descriptor appends a descriptor of one entry; varies tells that requests differ in its value.
func (r *requests) descriptor(key string, varies bool) {
	var entry []byte
	entry = protowire.AppendTag(entry, 1, protowire.BytesType)
	entry = protowire.AppendString(entry, key)
	entry = protowire.AppendTag(entry, 2, protowire.BytesType)
	entry = protowire.AppendString(entry, "00000000")
	var descriptor []byte
	descriptor = protowire.AppendTag(descriptor, 1, protowire.BytesType)
	descriptor = protowire.AppendBytes(descriptor, entry)
	r.template = protowire.AppendTag(r.template, 2, protowire.BytesType)
	r.template = protowire.AppendBytes(r.template, descriptor)
	if varies {
		r.digits = append(r.digits, len(r.template)-valueDigits)
	}
}

// size is the length of a request.
func (r *requests) size() int { return len(r.template) }

// draw appends a request with random values.
func (r *requests) draw(dst []byte, random *rand.Rand) []byte {
	switch len(r.digits) {
	case 0:
		return r.append(dst, 0, 0)
	case 1:
		return r.append(dst, random.IntN(r.keys), 0)
	default:
		first := random.IntN(r.keys)
		second := random.IntN(r.keys - 1) // of the others
		if second >= first {
			second++
		}
		return r.append(dst, first, second)
	}
}

// nth appends the request number i of a walk over all keys, 0 <= i < keys.
func (r *requests) nth(dst []byte, i int) []byte { return r.append(dst, i, (i+1)%r.keys) }

func (r *requests) append(dst []byte, values ...int) []byte {
	start := len(dst)
	dst = append(dst, r.template...)
	for i, at := range r.digits {
		value := values[i]
		for place := start + at + valueDigits - 1; value > 0; place-- {
			dst[place] = byte('0' + value%10)
			value /= 10
		}
	}
	return dst
}

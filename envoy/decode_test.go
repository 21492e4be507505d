package envoy

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func decoded(message []byte) (ratelimit.Request, error) {
	var (
		d decoder
		r ratelimit.Request
	)
	err := d.decode(message, &r)
	return r, err
}

// expected is what a request means, read from the generated type.
func expected(m *rlsv3.RateLimitRequest) ratelimit.Request {
	r := ratelimit.Request{Domain: m.GetDomain(), Cost: max(1, int64(m.GetHitsAddend()))}
	for _, d := range m.GetDescriptors() {
		descriptor := ratelimit.Descriptor{}
		for _, e := range d.GetEntries() {
			descriptor.Entries = append(descriptor.Entries, ratelimit.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		sign := int64(1)
		if d.GetIsNegativeHits() {
			sign = -1
		}
		switch {
		case d.GetHitsAddend() != nil:
			descriptor.HasCost, descriptor.Cost = true, sign*int64(min(d.GetHitsAddend().GetValue(), math.MaxInt64))
		case d.GetIsNegativeHits():
			descriptor.HasCost, descriptor.Cost = true, -r.Cost
		}
		if o := d.GetLimit(); o != nil {
			limit := ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: int64(o.GetRequestsPerUnit())}
			length := map[typev3.RateLimitUnit]time.Duration{
				typev3.RateLimitUnit_SECOND: time.Second,
				typev3.RateLimitUnit_MINUTE: time.Minute,
				typev3.RateLimitUnit_HOUR:   time.Hour,
				typev3.RateLimitUnit_DAY:    24 * time.Hour,
				7:                           7 * 24 * time.Hour, // RateLimitResponse's number for a week
				typev3.RateLimitUnit_MONTH:  30 * 24 * time.Hour,
				typev3.RateLimitUnit_YEAR:   365 * 24 * time.Hour,
			}[o.GetUnit()]
			if n := max(1, o.GetUnitMultiplier().GetValue()); time.Duration(n).Hours()*length.Hours() >= 0 && float64(n)*float64(length) <= float64(ratelimit.MaxWindow) {
				limit.Window = time.Duration(n) * length
			}
			descriptor.Limit = &limit
		}
		r.Descriptors = append(r.Descriptors, descriptor)
	}
	return r
}

func same(a, b ratelimit.Request) bool {
	return a.Domain == b.Domain && a.Cost == b.Cost && slices.EqualFunc(a.Descriptors, b.Descriptors, func(a, b ratelimit.Descriptor) bool {
		return slices.Equal(a.Entries, b.Entries) && a.HasCost == b.HasCost && a.Cost == b.Cost &&
			(a.Limit == nil) == (b.Limit == nil) && (a.Limit == nil || *a.Limit == *b.Limit)
	})
}

func descriptorOf(pairs ...string) *commonv3.RateLimitDescriptor {
	d := &commonv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// everything is a request that uses each field.
func everything() *rlsv3.RateLimitRequest {
	full := descriptorOf("plan", "free", "user", "u1")
	full.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_HOUR, UnitMultiplier: wrapperspb.UInt32(3)}
	full.HitsAddend = wrapperspb.UInt64(5)
	full.IsNegativeHits = true
	return &rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 9, Descriptors: []*commonv3.RateLimitDescriptor{
		full, descriptorOf("remote_address", "10.0.0.1"), descriptorOf(), descriptorOf("", ""),
		{HitsAddend: wrapperspb.UInt64(0)},
		{HitsAddend: wrapperspb.UInt64(math.MaxUint64)},
		{IsNegativeHits: true},
		{Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{}},
		{Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{Unit: typev3.RateLimitUnit_YEAR, UnitMultiplier: wrapperspb.UInt32(math.MaxUint32)}},
		{Limit: &commonv3.RateLimitDescriptor_RateLimitOverride{Unit: 7, RequestsPerUnit: math.MaxUint32, UnitMultiplier: wrapperspb.UInt32(0)}},
	}}
}

func TestDecodeReadsEveryField(t *testing.T) {
	m := everything()
	got, err := decoded(marshal(t, m))
	if err != nil {
		t.Fatal(err)
	}
	if want := expected(m); !same(got, want) {
		t.Errorf("decoded %+v\nwant %+v", got, want)
	}
	// A reminder to read fields that the protocol gains.
	for message, fields := range map[proto.Message]int{
		&rlsv3.RateLimitRequest{}: 3, &commonv3.RateLimitDescriptor{}: 4, &commonv3.RateLimitDescriptor_Entry{}: 2,
		&commonv3.RateLimitDescriptor_RateLimitOverride{}: 3, &rlsv3.RateLimitResponse{}: 7, &rlsv3.RateLimitResponse_DescriptorStatus{}: 5,
		&rlsv3.RateLimitResponse_RateLimit{}: 4,
	} {
		d := message.ProtoReflect().Descriptor()
		if got := d.Fields().Len(); got != fields {
			t.Errorf("%s has %d fields, %d are known here", d.FullName(), got, fields)
		}
	}
}

func TestDecodeMergesLikeProtobuf(t *testing.T) {
	hits := func(n uint64) []byte {
		return marshal(t, &commonv3.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(n)})
	}
	limit := func(o *commonv3.RateLimitDescriptor_RateLimitOverride) []byte {
		return marshal(t, &commonv3.RateLimitDescriptor{Limit: o})
	}
	for name, descriptor := range map[string][]byte{
		"a wrapper twice":               append(hits(5), hits(3)...),
		"the second without a value":    append(hits(5), protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), nil)...),
		"a limit in parts":              append(limit(&commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 3}), limit(&commonv3.RateLimitDescriptor_RateLimitOverride{Unit: 1})...),
		"multipliers":                   append(limit(&commonv3.RateLimitDescriptor_RateLimitOverride{Unit: 2, UnitMultiplier: wrapperspb.UInt32(3)}), limit(&commonv3.RateLimitDescriptor_RateLimitOverride{UnitMultiplier: wrapperspb.UInt32(0)})...),
		"a known field of another kind": protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 4),
		"an unknown group":              {0x53, 0x08, 0x01, 0x54},
		"a varint of ten bytes":         append([]byte{0x20}, bytes.Repeat([]byte{0x80}, 9)...),
		"a longer varint than needed":   {0x20, 0x81, 0x00},
	} {
		message := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), descriptor)
		compare(t, name, message)
	}
	compare(t, "scalars: the last one wins", append(marshal(t, &rlsv3.RateLimitRequest{Domain: "a", HitsAddend: 3}), marshal(t, &rlsv3.RateLimitRequest{Domain: "b", HitsAddend: 2})...))
	compare(t, "a cost beyond 32 bits", protowire.AppendVarint([]byte{0x18}, 1<<40+7))
	compare(t, "unknown fields", append(protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1), marshal(t, everything())...))
}

// compare checks that message is read as the generated type reads it.
func compare(t testing.TB, name string, message []byte) {
	t.Helper()
	got, err := decoded(message)
	var m rlsv3.RateLimitRequest
	oracle := proto.Unmarshal(message, &m)
	switch {
	case errors.Is(err, errTooManyDescriptors) || errors.Is(err, errTooManyEntries):
		return
	case oracle != nil && err == nil:
		if !strings.Contains(oracle.Error(), "UTF-8") {
			t.Errorf("%s: %x is accepted, but not by the generated type: %v", name, message, oracle)
		}
	case oracle == nil && err != nil:
		t.Errorf("%s: %x is refused: %v", name, message, err)
	case oracle == nil && !same(got, expected(&m)):
		t.Errorf("%s: %x is read as %+v, the generated type says %+v", name, message, got, expected(&m))
	}
}

func TestDecodeRefusesWhatIsBroken(t *testing.T) {
	good := marshal(t, everything())
	refused := 0
	for n := range good { // cut anywhere: refused, or a shorter request as the generated type reads it
		compare(t, "cut", good[:n])
		if _, err := decoded(good[:n]); err != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no cut message was refused")
	}
	for name, message := range map[string][]byte{
		"field 0":           {0x00, 0x01},
		"a huge field":      protowire.AppendVarint(nil, uint64(1<<29)<<3),
		"an endless varint": bytes.Repeat([]byte{0xff}, 11),
		"an open group":     {0x53, 0x08, 0x01},
		"a closed group":    {0x54},
		"wire type 7":       {0x0f},
		"length beyond":     {0x0a, 0x05, 'a'},
		"nested groups":     bytes.Repeat([]byte{0x53}, 100_000),
	} {
		if _, err := decoded(message); err == nil {
			t.Errorf("%s is accepted", name)
		}
		compare(t, name, message)
	}
}

func TestDecodeBounds(t *testing.T) {
	m := &rlsv3.RateLimitRequest{Domain: "edge"}
	for range MaxDescriptors {
		m.Descriptors = append(m.Descriptors, descriptorOf("a", "b"))
	}
	for range MaxEntries - 1 {
		m.Descriptors[0].Entries = append(m.Descriptors[0].Entries, m.Descriptors[0].Entries[0])
	}
	if r, err := decoded(marshal(t, m)); err != nil || len(r.Descriptors) != MaxDescriptors || len(r.Descriptors[0].Entries) != MaxEntries {
		t.Fatalf("the largest request: %v", err)
	}
	m.Descriptors[0].Entries = append(m.Descriptors[0].Entries, m.Descriptors[0].Entries[0])
	if _, err := decoded(marshal(t, m)); !errors.Is(err, errTooManyEntries) {
		t.Errorf("one entry more: %v", err)
	}
	m.Descriptors[0] = m.Descriptors[1]
	m.Descriptors = append(m.Descriptors, m.Descriptors[1])
	if _, err := decoded(marshal(t, m)); !errors.Is(err, errTooManyDescriptors) {
		t.Errorf("one descriptor more: %v", err)
	}
}

// Keys and values may be any bytes, of any length; everything else is as if they were text.
func TestDecodeTakesBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var message []byte
		var want ratelimit.Request
		want.Domain = string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "domain"))
		want.Cost = 1
		message = appendText(message, requestDomain, want.Domain)
		for range rapid.IntRange(0, 4).Draw(t, "descriptors") {
			var descriptor []byte
			var d ratelimit.Descriptor
			for range rapid.IntRange(0, 4).Draw(t, "entries") {
				e := ratelimit.Entry{
					Key:   string(rapid.SliceOfN(rapid.Byte(), 0, 10).Draw(t, "key")),
					Value: string(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "value")),
				}
				d.Entries = append(d.Entries, e)
				inner := appendText(appendText(nil, entryKey, e.Key), entryValue, e.Value)
				descriptor = protowire.AppendBytes(protowire.AppendTag(descriptor, descriptorEntries, protowire.BytesType), inner)
			}
			want.Descriptors = append(want.Descriptors, d)
			message = protowire.AppendBytes(protowire.AppendTag(message, requestDescriptors, protowire.BytesType), descriptor)
		}
		got, err := decoded(message)
		if err != nil || !same(got, want) {
			t.Fatalf("%x is read as %+v (%v), want %+v", message, got, err, want)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(marshal(f, everything()))
	f.Add([]byte{})
	f.Add([]byte{0x53, 0x08, 0x01, 0x54})
	f.Add([]byte("\x0a\x04edge\x12\x0b\x0a\x09\x0a\x04user\x12\x01\xff"))
	f.Fuzz(func(t *testing.T, message []byte) {
		before := bytes.Clone(message)
		compare(t, "fuzz", message)
		if !bytes.Equal(before, message) {
			t.Error("the message was changed")
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	message := marshal(b, &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{
		descriptorOf("remote_address", "203.0.113.77"), descriptorOf("plan", "free", "user", "user-001"),
	}})
	var d decoder
	b.ReportAllocs()
	for b.Loop() {
		d.reset()
		var r ratelimit.Request
		if err := d.decode(message, &r); err != nil {
			b.Fatal(err)
		}
	}
}

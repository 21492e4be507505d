package bench

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// framed puts gRPC's prefix before a message.
func framed(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

func serialized(t testing.TB, message proto.Message) []byte {
	t.Helper()
	out, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func response(code rlsv3.RateLimitResponse_Code, statuses int) *rlsv3.RateLimitResponse {
	out := &rlsv3.RateLimitResponse{OverallCode: code, RawBody: []byte("body")}
	for range statuses {
		out.Statuses = append(out.Statuses, &rlsv3.RateLimitResponse_DescriptorStatus{Code: code, LimitRemaining: 7})
	}
	return out
}

func TestParseReply(t *testing.T) {
	for code := range rlsv3.RateLimitResponse_Code_name {
		for statuses := range 4 {
			got, err := parseReply(framed(serialized(t, response(rlsv3.RateLimitResponse_Code(code), statuses))))
			if want := (reply{uint64(code), statuses, 0}); err != nil || got != want {
				t.Errorf("%+v (%v), want %+v", got, err, want)
			}
		}
	}
	telling := response(1, 3)
	telling.Statuses[0].CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{RequestsPerUnit: 5}
	telling.Statuses[2].CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{}
	if got, err := parseReply(framed(serialized(t, telling))); err != nil || got != (reply{1, 3, 2}) {
		t.Errorf("%+v (%v), want two limits", got, err)
	}
	good := framed(serialized(t, response(1, 1)))
	for _, c := range []struct {
		body []byte
		want error
	}{
		{nil, errNoMessage},
		{good[:4], errNoMessage},
		{good[:len(good)-1], errShortMessage},
		{slices.Concat(good, good), errMoreMessages},
		{append([]byte{1}, good[1:]...), errCompressed},
	} {
		if _, err := parseReply(c.body); !errors.Is(err, c.want) {
			t.Errorf("%x: error %v, want %v", c.body, err, c.want)
		}
	}
	if _, err := parseReply(framed([]byte{0x0a, 0xff})); err == nil {
		t.Error("a message that is cut inside is read")
	}
}

// Whatever the generated type reads, parseResponse reads alike.
func FuzzParseResponse(f *testing.F) {
	f.Add(serialized(f, response(1, 1)))
	f.Add(serialized(f, response(2, 3)))
	f.Add([]byte{0x08, 0x01, 0x08, 0x02})
	f.Fuzz(func(t *testing.T, message []byte) {
		got, err := parseResponse(message)
		var want rlsv3.RateLimitResponse
		if proto.Unmarshal(message, &want) != nil {
			return
		}
		if err != nil {
			t.Fatalf("the generated type reads it: %v", err)
		}
		if int32(got.code) != int32(want.GetOverallCode()) || got.statuses != len(want.GetStatuses()) {
			t.Fatalf("read %+v, the generated type %v and %d statuses", got, want.GetOverallCode(), len(want.GetStatuses()))
		}
	})
}

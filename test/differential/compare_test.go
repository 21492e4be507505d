package differential

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// String is the answer for people.
func (a answer) String() string {
	switch {
	case a.err != nil:
		return fmt.Sprintf("error %s", a.err)
	case a.reply == nil:
		return fmt.Sprintf("HTTP %d", a.status)
	default:
		return fmt.Sprintf("HTTP %d %s", a.status, protojson.Format(a.reply))
	}
}

// same reports whether two answers say the same, but for what is meant to differ. Between them the time until a reset may have
// become a second less.
func same(variant string, request *rlsv3.RateLimitRequest, reference, weir answer) bool {
	if !reference.fits() || !weir.fits() || (reference.reply == nil) != (weir.reply == nil) {
		return false
	}
	if reference.reply == nil {
		return reference.status == weir.status && reference.err == nil && weir.err == nil || status.Code(reference.err) == codes.Unknown && status.Code(weir.err) == codes.InvalidArgument
	}
	x, y := proto.CloneOf(reference.reply), proto.CloneOf(weir.reply)
	if len(x.GetStatuses()) != len(y.GetStatuses()) {
		return false
	}
	for _, d := range differences {
		if d.variant == "" || d.variant == variant {
			d.forgive(request, x, y)
		}
	}
	respace(x.GetDynamicMetadata())
	return near(takeResets(x), takeResets(y)) && proto.Equal(x, y)
}

// respace writes the limits in dynamic metadata with single spaces: messages are printed with one or two there, by chance, so that
// nobody relies on it.
func respace(metadata *structpb.Struct) {
	for _, descriptor := range metadata.GetFields()["descriptors"].GetListValue().GetValues() {
		if fields := descriptor.GetStructValue().GetFields(); fields["limit"] != nil {
			fields["limit"] = structpb.NewStringValue(strings.Join(strings.Fields(fields["limit"].GetStringValue()), " "))
		}
	}
}

// fits reports whether the status of an answer at /json is that of its reply.
func (a answer) fits() bool {
	if a.status == 0 || a.reply == nil {
		return true
	}
	over := a.reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT
	return a.status == map[bool]int{true: http.StatusTooManyRequests, false: http.StatusOK}[over]
}

// takeResets returns all times until a reset, and takes them out of the reply.
func takeResets(reply *rlsv3.RateLimitResponse) (resets []time.Duration) {
	for _, s := range reply.GetStatuses() {
		if s.GetDurationUntilReset() != nil {
			resets = append(resets, s.GetDurationUntilReset().AsDuration())
			s.DurationUntilReset = nil
		}
	}
	for _, header := range reply.GetResponseHeadersToAdd() {
		header.Key = strings.ToLower(header.GetKey()) // as HTTP/2 has them; weir writes them so itself
		if strings.EqualFold(header.GetKey(), "RateLimit-Reset") {
			seconds, err := strconv.Atoi(header.GetValue())
			if err != nil {
				return nil
			}
			resets = append(resets, time.Duration(seconds)*time.Second)
			header.Value = ""
		}
	}
	return resets
}

func near(a, b []time.Duration) bool {
	return slices.EqualFunc(a, b, func(x, y time.Duration) bool { return (x - y).Abs() <= 2*time.Second })
}

// differ lists the counters that are not equal.
func differ(reference, weir map[string]int64) (lines []string) {
	names := map[string]bool{}
	for _, counters := range []map[string]int64{reference, weir} {
		for name := range counters {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !strings.HasSuffix(name, cachedCounter) && reference[name] != weir[name] {
			lines = append(lines, fmt.Sprintf("%s: %d, by weir %d", name, reference[name], weir[name]))
		}
	}
	return lines
}

package envoy_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

func TestRequestMetadata(t *testing.T) {
	s := service(t, envoy.Options{RequestMetadata: true})
	own := descriptor("address", "1.2.3.4")
	own.HitsAddend = wrapperspb.UInt64(2)
	limited := descriptor("user", "ann")
	limited.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7, Unit: typev3.RateLimitUnit_HOUR}
	for _, c := range []struct {
		request *rlsv3.RateLimitRequest
		want    string
	}{
		{
			&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{descriptor("plan", "free", "user", "ann")}},
			`{"descriptors":[{"entries":["plan=free","user=ann"]}],"domain":"edge","quotaModeEnabled":false}`,
		},
		{
			&rlsv3.RateLimitRequest{Domain: "edge", HitsAddend: 3, Descriptors: []*commonv3.RateLimitDescriptor{own, limited, descriptor()}},
			`{"descriptors":[{"entries":["address=1.2.3.4"],"hitsAddend":2},{"entries":["user=ann"],"limit":"requests_per_unit:7 unit:HOUR"},{"entries":[]}],"domain":"edge","hitsAddend":3,"quotaModeEnabled":false}`,
		},
	} {
		got, err := json.Marshal(serve(t, s, c.request).GetDynamicMetadata().AsMap())
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	// Beside weir's own fields.
	both := serve(t, service(t, envoy.Options{RequestMetadata: true, Metadata: true}),
		&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{descriptor("user", "ann")}}).GetDynamicMetadata().AsMap()
	if both["domain"] != "edge" || both["rule"] != "per-user" {
		t.Errorf("%v", both)
	}
}

// A descriptor that is over in quota mode is named by its index, whether or not another one has the request denied.
func TestQuotaViolations(t *testing.T) {
	minute := []ratelimit.Limit{{Algorithm: ratelimit.FixedWindow, Count: 1, Window: time.Minute}}
	table, err := rules.Compile(rules.Options{}, &rules.Source{Name: "test", Domains: []rules.Domain{{Name: "edge", Descriptors: []rules.Definition{
		{Key: "quota", QuotaMode: true, Limits: minute},
		{Key: "wide", QuotaMode: true, RateLimit: &rules.RateLimit{Unit: "hour", RequestsPerUnit: 1000}},
		{Key: "hard", Limits: minute},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	l := limiter(t, nil)
	l.SetTable(table)
	s := envoy.New(l, envoy.Options{RequestMetadata: true})
	request := &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{descriptor("wide", "1"), descriptor("quota", "1")}}
	for _, want := range []string{"<nil>", "[1]"} {
		fields := serve(t, s, request).GetDynamicMetadata().AsMap()
		if got := fmt.Sprint(fields["quotaModeViolations"]); got != want || fields["quotaModeEnabled"] != true {
			t.Errorf("violations %s, want %s: %v", got, want, fields)
		}
	}
	request.Descriptors = append(request.GetDescriptors(), descriptor("hard", "1"))
	serve(t, s, request)
	if got := fmt.Sprint(serve(t, s, request).GetDynamicMetadata().AsMap()["quotaModeViolations"]); got != "[1]" {
		t.Errorf("violations of a denied request: %s", got)
	}
}

package xds

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configpb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/pkg/rules"
)

type adsStream = discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer

// hostile is a control plane that does what its script says. The script gets each stream, with its number from 0, after its first
// request.
type hostile struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	script  func(stream adsStream, number int) error
	streams atomic.Int64
}

func (h *hostile) StreamAggregatedResources(stream adsStream) error {
	number := int(h.streams.Add(1)) - 1
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return h.script(stream, number)
}

// newHostile returns the address of a hostile control plane.
func newHostile(t testing.TB, script func(stream adsStream, number int) error) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, &hostile{script: script})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().String()
}

func packed(t testing.TB, config *configpb.RateLimitConfig) *anypb.Any {
	t.Helper()
	resource, err := anypb.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return resource
}

// raw is a resource of these bytes.
func raw(message []byte) *anypb.Any { return &anypb.Any{TypeUrl: TypeURL, Value: message} }

// nested are descriptors that go so many levels deep, as bytes.
func nested(levels int) []byte {
	var message []byte
	for i := range levels {
		inner := message
		message = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "key")
		if i > 0 {
			message = protowire.AppendBytes(protowire.AppendTag(message, 4, protowire.BytesType), inner)
		}
	}
	config := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "deep")
	return protowire.AppendBytes(protowire.AppendTag(config, 3, protowire.BytesType), message)
}

func TestHostileResponses(t *testing.T) {
	tooMany := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "wide")
	for range maxDescriptors + 1 {
		tooMany = append(tooMany, 3<<3|2, 0)
	}
	deepMetadata := users("a", 1)
	deep := structpb.NewStringValue("end")
	for range maxMetadataDepth {
		deep = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"in": deep}})
	}
	deepMetadata.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"in": deep}}
	noNumber := users("a", 1)
	noNumber.Descriptors[0].Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewNumberValue(inf())}}

	for _, test := range []struct {
		name     string
		response *discovery.DiscoveryResponse
		want     []string
	}{
		{
			"another type", &discovery.DiscoveryResponse{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"},
			[]string{`"type.googleapis.com/envoy.config.cluster.v3.Cluster"`, "send " + TypeURL},
		},
		{
			"a resource of another type", &discovery.DiscoveryResponse{Resources: []*anypb.Any{{TypeUrl: "x\ny"}}},
			[]string{"resource 0", `"x?y"`, "send " + TypeURL},
		},
		{"no resource at all", &discovery.DiscoveryResponse{Resources: []*anypb.Any{nil}}, []string{"resource 0"}},
		{
			"garbage", &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, users("a", 1)), raw([]byte("garbage\xFF\x00"))}},
			[]string{"resource 1 cannot be read"},
		},
		{
			"text that is not UTF-8", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw([]byte{2<<3 | 2, 1, 0xFF})}},
			[]string{"resource 0 cannot be read"},
		},
		{"an empty resource", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw(nil)}}, []string{"the domain is empty"}},
		{
			"one domain twice", &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, users("a", 1)), packed(t, users("a", 1))}},
			[]string{`domain "a" is already defined`},
		},
		{
			"one place twice",
			&discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, &configpb.RateLimitConfig{
				Name: "n", Domain: "a", Descriptors: append(users("", 1).GetDescriptors(), users("", 2).GetDescriptors()...),
			})}},
			[]string{"xds:n", `domain "a"`, "two rules for the same place, user"},
		},
		{"descriptors without a key", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw(append([]byte{2<<3 | 2, 1, 'd'}, 3<<3|2, 0))}}, []string{"no key"}},
		{"too deep", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw(nested(rules.MaxDepth + 1))}}, []string{"nest deeper than 32 levels"}},
		{"as deep as can be sent", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw(nested(5000))}}, []string{"resource 0 cannot be read"}},
		{"too many descriptors", &discovery.DiscoveryResponse{Resources: []*anypb.Any{raw(tooMany)}}, []string{"more than 1000000 descriptors"}},
		{
			"a unit that is not known", &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, &configpb.RateLimitConfig{
				Domain: "a", Descriptors: []*configpb.RateLimitDescriptor{{Key: "k", RateLimit: &configpb.RateLimitPolicy{Unit: 99}}},
			})}},
			[]string{`bad unit "99"`},
		},
		{"metadata that is too deep", &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, deepMetadata)}}, []string{"user=", "metadata nests deeper"}},
		{"metadata that no JSON has", &discovery.DiscoveryResponse{Resources: []*anypb.Any{packed(t, noNumber)}}, []string{"metadata holds +Inf"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			answers := make(chan *discovery.DiscoveryRequest, 10)
			if test.response.TypeUrl == "" {
				test.response.TypeUrl = TypeURL
			}
			good := &discovery.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: "good", Nonce: "1", Resources: []*anypb.Any{packed(t, users("before", 1))}}
			bad := proto.CloneOf(test.response)
			bad.VersionInfo, bad.Nonce = "bad", "2"
			address := newHostile(t, func(stream adsStream, _ int) error {
				for _, response := range []*discovery.DiscoveryResponse{good, bad, good} {
					if err := stream.Send(response); err != nil {
						return err
					}
					answer, err := stream.Recv()
					if err != nil {
						return err
					}
					answers <- answer
				}
				<-stream.Context().Done()
				return nil
			})
			_, into := follow(t, Options{Server: address, MaxMessageBytes: 64 << 20})
			if ack := receive(t, answers, "an ACK"); ack.GetErrorDetail() != nil || ack.GetVersionInfo() != "good" || ack.GetResponseNonce() != "1" {
				t.Fatalf("the ACK is %v", ack)
			}
			nack := receive(t, answers, "a NACK")
			if nack.GetErrorDetail() == nil || nack.GetVersionInfo() != "good" || nack.GetResponseNonce() != "2" || nack.GetTypeUrl() != TypeURL {
				t.Fatalf("the NACK is %v", nack)
			}
			contains(t, nack.GetErrorDetail().GetMessage(), test.want...)
			if into.limit("before", "ann") != 1 {
				t.Error("the rules before are not in force any more")
			}
			if ack := receive(t, answers, "an ACK"); ack.GetErrorDetail() != nil {
				t.Errorf("after a bad response a good one is answered by %v", ack)
			}
		})
	}
}

func inf() float64 { zero := 0.0; return 1 / zero }

func TestNACKOfBoundedLength(t *testing.T) {
	config := &configpb.RateLimitConfig{Name: strings.Repeat("n", 10_000), Domain: "a"}
	for i := range 5000 {
		config.Descriptors = append(config.Descriptors, &configpb.RateLimitDescriptor{Key: fmt.Sprint(i), RateLimit: &configpb.RateLimitPolicy{}})
	}
	p := newPlane(t)
	follow(t, Options{Server: p.address})
	p.set(config)
	text := p.nacked().GetErrorDetail().GetMessage()
	if len(text) > maxNACK+100 {
		t.Errorf("a NACK of %d bytes", len(text))
	}
	contains(t, text, "rate_limit has no unit", "more")
}

// A message that is too large ends the stream; the rules stay, and the next stream is followed.
func TestMessageThatIsTooLarge(t *testing.T) {
	large := users("large", 1)
	large.Name = strings.Repeat("x", 100_000)
	release := make(chan struct{})
	address := newHostile(t, func(stream adsStream, number int) error {
		responses := []*configpb.RateLimitConfig{users("a", 1), large}
		if number > 0 {
			<-release
			responses = []*configpb.RateLimitConfig{users("a", 2)}
		}
		for i, config := range responses {
			response := &discovery.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), Resources: []*anypb.Any{packed(t, config)}}
			if err := stream.Send(response); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return nil
	})
	observed := &observer{}
	_, into := follow(t, Options{Server: address, MaxMessageBytes: 50_000, Observer: observed})
	eventually(t, "the end of the stream", func() bool { return observed.downs.Load() > 0 })
	if into.limit("a", "ann") != 1 {
		t.Error("the rules before are not in force")
	}
	close(release)
	eventually(t, "the rules of the next stream", func() bool { return into.limit("a", "ann") == 2 })
}

type observer struct{ ups, downs, accepted, refused atomic.Int64 }

func (o *observer) ControlPlaneUp(up bool) {
	if up {
		o.ups.Add(1)
	} else {
		o.downs.Add(1)
	}
}

func (o *observer) ControlPlaneResponse(accepted bool) {
	if accepted {
		o.accepted.Add(1)
	} else {
		o.refused.Add(1)
	}
}

// Responses that do not wait for the answers to those before are all answered, and the last one counts.
func TestFloodOfResponses(t *testing.T) {
	const flood = 2000
	last := make(chan *discovery.DiscoveryRequest, 1)
	address := newHostile(t, func(stream adsStream, _ int) error {
		go func() {
			for i := range uint32(flood) {
				resource, err := anypb.New(users("a", i+1))
				if err != nil || stream.Send(&discovery.DiscoveryResponse{TypeUrl: TypeURL, VersionInfo: fmt.Sprint(i), Nonce: fmt.Sprint(i), Resources: []*anypb.Any{resource}}) != nil {
					return
				}
			}
		}()
		for {
			request, err := stream.Recv()
			if err != nil {
				return err
			}
			if request.GetResponseNonce() == fmt.Sprint(flood-1) {
				last <- request
			}
		}
	})
	_, into := follow(t, Options{Server: address})
	if request := receive(t, last, "the answer to the last response"); request.GetErrorDetail() != nil {
		t.Errorf("it is %v", request)
	}
	if into.limit("a", "ann") != flood {
		t.Errorf("limit %d, want %d", into.limit("a", "ann"), flood)
	}
}

// A control plane that answers each NACK by the same rules, as go-control-plane does, is not answered as fast as it can send.
func TestRefusalsThatRepeatSlowDown(t *testing.T) {
	p := newPlane(t)
	_, into := follow(t, Options{Server: p.address})
	p.set(&configpb.RateLimitConfig{Name: "nameless"})
	began := time.Now()
	for range 4 {
		p.nacked()
	}
	if elapsed := time.Since(began); elapsed < minHesitation*7/2 {
		t.Errorf("four NACKs in %v", elapsed)
	}
	into.mu.Lock()
	defer into.mu.Unlock()
	if len(into.refused) != 1 {
		t.Errorf("one refusal is told %d times", len(into.refused))
	}
}

// Streams that end as soon as they begin are not opened without pause.
func TestStreamsThatEndAtOnce(t *testing.T) {
	var streams atomic.Int64
	address := newHostile(t, func(adsStream, int) error {
		streams.Add(1)
		return nil
	})
	client, _ := follow(t, Options{Server: address, Backoff: Backoff{Initial: time.Hour, Max: time.Hour}})
	eventually(t, "an end that is told", func() bool {
		err := client.Ready(t.Context())
		return err != nil && strings.Contains(err.Error(), "ended the stream")
	})
	if n := streams.Load(); n != 1 {
		t.Errorf("%d streams in the first hour", n)
	}
}

func TestPauses(t *testing.T) {
	p := &pauses{backoff: Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Factor: 3}.withDefaults(), connectRetry: 40 * time.Millisecond}
	for i, want := range []int64{100, 300, 900, 1000, 1000} {
		if got := p.afterStream(false).Milliseconds(); got != want {
			t.Errorf("pause %d is %d ms, want %d ms", i, got, want)
		}
	}
	if got := p.afterStream(true); got != 100*time.Millisecond {
		t.Errorf("after a stream that brought rules the pause is %v", got)
	}
	p.backoff.Jitter = true
	for range 1000 {
		if got := p.afterStream(false); got < 100*time.Millisecond || got > time.Second {
			t.Fatalf("the pause is %v", got)
		}
		if got := p.unreachable(); got < 20*time.Millisecond || got > 60*time.Millisecond {
			t.Fatalf("the pause before connecting again is %v", got)
		}
	}
	for range 1000 {
		if got := p.afterStream(true); got < 50*time.Millisecond || got > 100*time.Millisecond {
			t.Fatalf("the pause after a good stream is %v", got)
		}
	}
}

func FuzzResources(f *testing.F) {
	good, _ := proto.Marshal(users("a", 1))
	f.Add(good)
	f.Add(nested(40))
	f.Add([]byte{3<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		old, err := new(resources).compile(rules.Options{}, []*anypb.Any{packed(t, users("base", 1))})
		if err != nil {
			t.Fatal(err)
		}
		next, err := old.compile(rules.Options{}, []*anypb.Any{raw(message)})
		var config configpb.RateLimitConfig
		if proto.Unmarshal(message, &config) == nil {
			if got, want := countDescriptors(message, configDescriptors, maxDescriptors, 0), count(config.GetDescriptors()); got < want {
				t.Errorf("%d descriptors were counted as %d", want, got)
			}
		}
		if err != nil {
			return
		}
		again, err := next.compile(rules.Options{}, []*anypb.Any{raw(message)})
		if err != nil || again != next {
			t.Errorf("the same resources were taken for others: %v", err)
		}
	})
}

func count(descriptors []*configpb.RateLimitDescriptor) int {
	n := len(descriptors)
	for _, d := range descriptors {
		n += count(d.GetDescriptors())
	}
	return n
}

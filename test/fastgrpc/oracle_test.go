package fastgrpc

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/test/servers"
)

// edgeRules have windows so long that no test sees one end.
const edgeRules = `
domain: edge
descriptors:
  - key: user
    limits: [{algorithm: fixed_window, limit: 7, window: 30d}]
  - key: path
    limits: [{algorithm: token_bucket, limit: 40, window: 30d}]
    descriptors:
      - key: user
        limits: [{algorithm: sliding_window, limit: 5, window: 30d}, {algorithm: fixed_window, limit: 9, window: 60d}]
  - key: free
    rate_limit: {unlimited: true}
`

// generate draws serialized requests: mostly good ones, and some that are wrong.
func generate(seed uint64, n int) [][]byte {
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // the same each time
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	requests := make([][]byte, 0, n)
	for range n {
		request := &rlsv3.RateLimitRequest{Domain: pick("edge", "edge", "edge", "edge", "other", "")}
		if random.IntN(4) == 0 {
			request.HitsAddend = uint32(random.IntN(4)) //nolint:gosec // small
		}
		for range random.IntN(4) {
			descriptor := &commonv3.RateLimitDescriptor{}
			for range 1 + random.IntN(2) {
				descriptor.Entries = append(descriptor.Entries, &commonv3.RateLimitDescriptor_Entry{
					Key: pick("user", "path", "free", "none"), Value: pick("a", "b", "c", "/", "é", strings.Repeat("long", random.IntN(2000))),
				})
			}
			if random.IntN(5) == 0 {
				descriptor.HitsAddend = wrapperspb.UInt64(uint64(random.IntN(5))) //nolint:gosec // small
			}
			request.Descriptors = append(request.Descriptors, descriptor)
		}
		data, err := proto.Marshal(request)
		if err != nil {
			panic(err)
		}
		if random.IntN(20) == 0 && len(data) > 0 {
			data = data[:random.IntN(len(data))]
		}
		requests = append(requests, data)
	}
	return requests
}

// raw is a codec of bytes.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), data...)
	return nil
}
func (raw) Name() string { return "proto" }

func connect(t testing.TB, address string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options = append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, options...)
	connection, err := grpc.NewClient(address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// ask returns the reply in hexadecimal, or the code and, if wanted, the message.
func ask(ctx context.Context, connection *grpc.ClientConn, request []byte) string {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var reply []byte
	if err := connection.Invoke(ctx, envoy.MethodPath, &request, &reply, grpc.ForceCodec(raw{})); err != nil {
		return fmt.Sprintf("code %d %s", status.Code(err), status.Convert(err).Message())
	}
	return hex.EncodeToString(reply)
}

// drift is how far two tellings of one moment may lie apart: the servers were asked one after the other, on a busy machine.
const drift = 30 * time.Second

// same compares two answers, field by field. What depends on the moment of asking may differ by the drift: the time until a reset, and
// the seconds that headers and bodies say.
func same(a, b string) bool {
	first, errA := hex.DecodeString(a)
	second, errB := hex.DecodeString(b)
	if errA != nil || errB != nil {
		return a == b
	}
	var x, y rlsv3.RateLimitResponse
	if proto.Unmarshal(first, &x) != nil || proto.Unmarshal(second, &y) != nil || len(x.GetStatuses()) != len(y.GetStatuses()) ||
		len(x.GetResponseHeadersToAdd()) != len(y.GetResponseHeadersToAdd()) {
		return false
	}
	for i, s := range x.GetStatuses() {
		other := y.GetStatuses()[i]
		if (s.GetDurationUntilReset() == nil) != (other.GetDurationUntilReset() == nil) {
			return false
		}
		if s.GetDurationUntilReset() == nil {
			continue
		}
		if (s.GetDurationUntilReset().AsDuration() - other.GetDurationUntilReset().AsDuration()).Abs() > drift {
			return false
		}
		s.DurationUntilReset, other.DurationUntilReset = durationpb.New(0), durationpb.New(0)
	}
	for i, header := range x.GetResponseHeadersToAdd() {
		other := y.GetResponseHeadersToAdd()[i]
		if name := header.GetKey(); (strings.HasSuffix(name, "reset") || name == "retry-after") && near(header.GetValue(), other.GetValue()) {
			header.Value, other.Value = "", ""
		}
	}
	if sameBody(x.GetRawBody(), y.GetRawBody()) {
		x.RawBody, y.RawBody = nil, nil
	}
	return proto.Equal(&x, &y)
}

// near says whether two numbers of seconds are within the drift.
func near(a, b string) bool {
	x, errA := strconv.ParseInt(a, 10, 64)
	y, errB := strconv.ParseInt(b, 10, 64)
	return errA == nil && errB == nil && (time.Duration(x-y)*time.Second).Abs() <= drift
}

// moments are the numbers in a problem's body that depend on the moment of asking.
var moments = regexp.MustCompile(`(?:"retry_after":|Try again in )(\d+)`)

func sameBody(a, b []byte) bool {
	x, y := moments.FindAllSubmatch(a, -1), moments.FindAllSubmatch(b, -1)
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !near(string(x[i][1]), string(y[i][1])) {
			return false
		}
	}
	return bytes.Equal(moments.ReplaceAll(a, nil), moments.ReplaceAll(b, nil))
}

// The oracle forgives a second between two answers, and nothing else.
func TestSameForgivesOnlyTheMoment(t *testing.T) {
	reply := func(remaining uint32, until time.Duration, reset, retry, body string) string {
		data, err := proto.Marshal(&rlsv3.RateLimitResponse{
			Statuses: []*rlsv3.RateLimitResponse_DescriptorStatus{{LimitRemaining: remaining, DurationUntilReset: durationpb.New(until)}},
			ResponseHeadersToAdd: []*corev3.HeaderValue{
				{Key: "x-ratelimit-remaining", Value: strconv.Itoa(int(remaining))}, {Key: "x-ratelimit-reset", Value: reset}, {Key: "retry-after", Value: retry},
			},
			RawBody: []byte(body),
		})
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(data)
	}
	const body = `{"detail":"Try again in 60 seconds.","violated-policies":["a"],"retry_after":60}`
	first := reply(3, time.Minute, "1800000060", "60", body)
	for name, c := range map[string]struct {
		other string
		same  bool
	}{
		"equal":        {first, true},
		"later":        {reply(3, 59*time.Second, "1800000061", "59", strings.ReplaceAll(body, "60", "59")), true},
		"much later":   {reply(3, time.Minute, "1800000160", "60", body), false},
		"other retry":  {reply(3, time.Minute, "1800000060", "soon", body), false},
		"other count":  {reply(2, time.Minute, "1800000060", "60", body), false},
		"other window": {reply(3, time.Hour, "1800000060", "60", body), false},
		"other policy": {reply(3, time.Minute, "1800000060", "60", strings.ReplaceAll(body, `"a"`, `"b"`)), false},
		"other body":   {reply(3, time.Minute, "1800000060", "60", strings.ReplaceAll(body, "60", "600")), false},
		"no body":      {reply(3, time.Minute, "1800000060", "60", ""), false},
		"an error":     {"code 8 busy", false},
	} {
		if got := same(first, c.other); got != c.same {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Two servers get the same requests, one by each front: every field of every answer is the same.
func TestBothFrontsAnswerTheSame(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, options *servers.WeirOptions) (credentials.TransportCredentials, int){
		"memory": func(*testing.T, *servers.WeirOptions) (credentials.TransportCredentials, int) {
			return insecure.NewCredentials(), 1500
		},
		"redis": func(t *testing.T, options *servers.WeirOptions) (credentials.TransportCredentials, int) {
			options.Set["redis.url"] = "redis://" + servers.Redis(t).Addr()
			options.Set["redis.timeout_ms"] = "5000"
			return insecure.NewCredentials(), 1500
		},
		"TLS": func(t *testing.T, options *servers.WeirOptions) (credentials.TransportCredentials, int) {
			authority := overTLS(t, options)
			return credentials.NewTLS(authority.Client()), 500
		},
	} {
		t.Run(name, func(t *testing.T) {
			start := func() (*servers.WeirServer, grpc.DialOption, int) {
				options := servers.WeirOptions{Rules: map[string]string{"edge.yaml": edgeRules}, Set: map[string]string{
					"envoy.response_headers": "x-ratelimit", "envoy.problem_json": "true", "envoy.dynamic_metadata": "true",
				}}
				secured, calls := set(t, &options)
				return servers.Weir(t, options), grpc.WithTransportCredentials(secured), calls
			}
			first, secured, calls := start()
			fast := connect(t, first.Fast(), secured)
			second, secured, _ := start()
			oracle := connect(t, second.GRPC(), secured)
			for i, request := range generate(1, calls) {
				got, want := ask(t.Context(), fast, request), ask(t.Context(), oracle, request)
				if !same(got, want) {
					t.Fatalf("request %d (%x) was answered\n%s, by grpc-go\n%s", i, request, got, want)
				}
			}
		})
	}
}

// overTLS has a server's gRPC listeners speak TLS, by a certificate of the authority that is returned.
func overTLS(t *testing.T, options *servers.WeirOptions) *servers.Authority {
	t.Helper()
	authority := servers.NewAuthority(t, t.TempDir())
	options.Set["tls.cert_file"], options.Set["tls.key_file"], options.Set["tls.http"] = authority.CertFile, authority.KeyFile, "false"
	return authority
}

// looks are requests that charge nothing, so that all clients get the same answers.
func looks(t testing.TB, n int) [][]byte {
	t.Helper()
	var found [][]byte
	for _, data := range generate(2, n) {
		request := new(rlsv3.RateLimitRequest)
		if proto.Unmarshal(data, request) == nil {
			for _, descriptor := range request.GetDescriptors() {
				descriptor.HitsAddend = wrapperspb.UInt64(0)
			}
			var err error
			if data, err = proto.Marshal(request); err != nil {
				t.Fatal(err)
			}
		}
		found = append(found, data)
	}
	return found
}

func TestForeignClients(t *testing.T) { testForeignClients(t, false) }

func TestForeignClientsOverTLS(t *testing.T) { testForeignClients(t, true) }

func testForeignClients(t *testing.T, secure bool) {
	t.Helper()
	options := servers.WeirOptions{Rules: map[string]string{"edge.yaml": edgeRules}, Set: map[string]string{}}
	secured, scheme := insecure.NewCredentials(), "http"
	var trust, grpcurlTrust []string
	if grpcurlTrust = []string{"-plaintext"}; secure {
		authority := overTLS(t, &options)
		secured, scheme = credentials.NewTLS(authority.Client()), "https"
		trust, grpcurlTrust = []string{authority.CAFile}, []string{"-cacert", authority.CAFile}
	}
	weir := servers.Weir(t, options)
	oracle := connect(t, weir.GRPC(), grpc.WithTransportCredentials(secured))
	for _, request := range generate(3, 200) { // some counters are used
		ask(t.Context(), oracle, request)
	}
	requests := looks(t, 1000)
	var input strings.Builder
	want := make([]string, 0, len(requests))
	for _, request := range requests {
		fmt.Fprintf(&input, "%x\n", request)
		answer := ask(t.Context(), oracle, request)
		if strings.HasPrefix(answer, "code ") {
			answer = strings.Join(strings.Fields(answer)[:2], " ")
		}
		want = append(want, answer)
	}
	root := servers.Root(t)
	for name, command := range map[string][]string{
		"grpcio":  {filepath.Join(root, "build", "venv", "bin", "python3"), "clients/call.py", weir.Fast(), envoy.MethodPath},
		"grpc-js": {"node", "clients/call.js", weir.Fast(), envoy.MethodPath, filepath.Join(root, "build", "node", "node_modules")},
	} {
		t.Run(name, func(t *testing.T) {
			client := exec.CommandContext(t.Context(), command[0], append(command[1:], trust...)...)
			client.Stdin, client.Stderr = strings.NewReader(input.String()), os.Stderr
			output, err := client.Output()
			if err != nil {
				t.Fatalf("%v: run `make test-setup`", err)
			}
			got := strings.Split(strings.TrimSuffix(string(output), "\n"), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d answers for %d requests", len(got), len(want))
			}
			for i := range got {
				if !same(got[i], want[i]) {
					t.Fatalf("request %d (%x) was answered\n%s, to grpc-go\n%s", i, requests[i], got[i], want[i])
				}
			}
		})
	}
	t.Run("grpcurl", func(t *testing.T) { askWithGrpcurl(t, weir.Fast(), grpcurlTrust) })
	t.Run("h2load", func(t *testing.T) { loadWithH2load(t, scheme+"://"+weir.Fast()) })
	t.Run("health", func(t *testing.T) {
		checks := healthpb.NewHealthClient(connect(t, weir.Fast(), grpc.WithTransportCredentials(secured)))
		for _, service := range []string{"", envoy.ServiceName, "no.Such"} {
			got, gotErr := checks.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			answer, wantErr := healthpb.NewHealthClient(oracle).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if !proto.Equal(got, answer) || status.Code(gotErr) != status.Code(wantErr) {
				t.Errorf("%q: %v %v, by grpc-go %v %v", service, got, gotErr, answer, wantErr)
			}
		}
		stream, err := checks.Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if !strings.Contains(fmt.Sprint(err), "Unimplemented") {
			t.Errorf("Watch: %v", err)
		}
	})
	if n := weir.Metric(`weir_grpc_requests_total{code="OK",method="` + envoy.MethodPath + `"}`); n < 20000 {
		t.Errorf("%v calls were counted", n)
	}
}

func askWithGrpcurl(t *testing.T, address string, trust []string) {
	t.Helper()
	set := new(descriptorpb.FileDescriptorSet)
	seen := make(map[string]bool)
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := range imports.Len() {
			add(imports.Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	add(rlsv3.File_envoy_service_ratelimit_v3_rls_proto)
	data, err := proto.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rls.protoset")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	output, err := exec.CommandContext(t.Context(), tool(t, "grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl"),
		append(trust, "-protoset", path, "-d", `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"grpcurl"}]}]}`,
			address, envoy.ServiceName+"/ShouldRateLimit")...).CombinedOutput()
	if err != nil || !strings.Contains(string(output), `"limitRemaining": 6`) {
		t.Errorf("grpcurl: %v\n%s", err, output)
	}
}

func loadWithH2load(t *testing.T, url string) {
	t.Helper()
	message, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*commonv3.RateLimitDescriptor{{
		Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: "h2load"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	body := append([]byte{0, 0, 0, byte(len(message) >> 8), byte(len(message))}, message...)
	path := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		t.Fatal(err)
	}
	const calls = 20000
	output, err := exec.CommandContext(t.Context(), "h2load", "-n", strconv.Itoa(calls), "-c", "4", "-m", "32", "-d", path,
		"-H", "content-type: application/grpc", "-H", "te: trailers", url+envoy.MethodPath).CombinedOutput()
	if err != nil || !strings.Contains(string(output), fmt.Sprintf("%d succeeded, 0 failed, 0 errored, 0 timeout", calls)) {
		t.Errorf("h2load: %v: run `make test-setup`\n%s", err, output)
	}
}

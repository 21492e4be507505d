package fastgrpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/envoy"
	"github.com/weirhq/weir/pkg/engine"
	"github.com/weirhq/weir/pkg/fastgrpc"
	"github.com/weirhq/weir/pkg/memstore"
	"github.com/weirhq/weir/pkg/rules"
)

const (
	fuzzMessageBytes = 4 << 10
	fuzzPatience     = 4 * time.Second
)

// service decides by the rules of this package, with counters of its own and a clock that stands still.
func service(t testing.TB) *envoy.Service {
	t.Helper()
	store := memstore.New(memstore.Options{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
	t.Cleanup(store.Close)
	source, problems := rules.Parse("edge.yaml", []byte(edgeRules))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	table, err := rules.Compile(rules.Options{}, source)
	if err != nil {
		t.Fatal(err)
	}
	limiter := engine.New(store, engine.Options{})
	limiter.SetTable(table)
	return envoy.New(limiter, envoy.Options{Now: func() time.Time { return time.Unix(1_700_000_000, 0) }})
}

// startBoth starts the two servers that must answer the same, and returns their addresses.
func startBoth(t testing.TB) (fast, oracle string) {
	t.Helper()
	var listen net.ListenConfig
	open := func() net.Listener {
		listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return listener
	}
	decides := service(t)
	server := fastgrpc.New(fastgrpc.Options{MaxMessageBytes: fuzzMessageBytes}, fastgrpc.Method{
		Path: envoy.MethodPath, Handler: func(ctx context.Context, calls []fastgrpc.Call) {
			batch := make([]envoy.Call, len(calls))
			for i := range calls {
				batch[i] = envoy.Call{Request: calls[i].Request}
			}
			decides.Serve(ctx, batch)
			for i := range calls {
				calls[i].Reply = append(calls[i].Reply, batch[i].Reply...)
				calls[i].Code, calls[i].Message = batch[i].Code, batch[i].Message
			}
		},
	})
	mine := open()
	go func() { _ = server.Serve(mine) }()
	t.Cleanup(func() { _ = server.Close() })

	reference := grpc.NewServer(envoy.ServerOption(), grpc.MaxRecvMsgSize(fuzzMessageBytes))
	envoy.Register(reference, service(t))
	theirs := open()
	go func() { _ = reference.Serve(theirs) }()
	t.Cleanup(reference.Stop)
	return mine.Addr().String(), theirs.Addr().String()
}

// script is what the bytes of a fuzzer stand for: a few calls, each with a header and a way to send it.
type script struct{ calls []scriptedCall }

type scriptedCall struct {
	fields  []hpack.HeaderField
	message []byte // with its prefix
	cuts    []int  // where DATA frames end
	padding int
	split   bool // the header, into HEADERS and CONTINUATION
	alone   bool // END_STREAM in a frame of its own
	plain   bool // header fields that the table does not remember
}

func (s script) String() string {
	var lines []string
	for i := range s.calls {
		lines = append(lines, s.calls[i].String())
	}
	return strings.Join(lines, "\n")
}

func (c *scriptedCall) String() string {
	var text strings.Builder
	for _, field := range c.fields {
		fmt.Fprintf(&text, "%s=%q ", field.Name, field.Value)
	}
	fmt.Fprintf(&text, "%d bytes %x cut at %d, padding %d, split %v, END_STREAM alone %v, plain %v",
		len(c.message), c.message[:min(len(c.message), 60)], c.cuts, c.padding, c.split, c.alone, c.plain)
	return text.String()
}

// source takes a fuzzer's bytes one by one; after the last one there are zeros.
type source struct{ data []byte }

func (s *source) next() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

func (s *source) take(n int) []byte {
	n = min(n, len(s.data))
	taken := s.data[:n]
	s.data = s.data[n:]
	return taken
}

func (s *source) pick(of ...string) string { return of[s.next()%len(of)] }

const callsOfScript = 4

func readScript(data []byte) script {
	from := &source{data}
	var made script
	for range callsOfScript {
		if len(from.data) == 0 {
			break
		}
		made.calls = append(made.calls, readCall(from))
	}
	return made
}

func readCall(from *source) scriptedCall {
	add := func(c *scriptedCall, name, value string) {
		if value != "-" {
			c.fields = append(c.fields, hpack.HeaderField{Name: name, Value: value, Sensitive: c.plain})
		}
	}
	how := from.next()
	c := scriptedCall{split: how&1 != 0, alone: how&2 != 0, plain: how&4 != 0}
	if how&8 != 0 {
		c.padding = from.next()
	}
	odd := how&16 != 0 // most calls have a usual header
	choose := func(usual string, others ...string) string {
		if !odd {
			return usual
		}
		return from.pick(append([]string{usual}, others...)...)
	}
	add(&c, ":method", choose("POST", "GET", "PUT"))
	add(&c, ":scheme", "http")
	add(&c, ":path", choose(envoy.MethodPath, "/envoy.service.ratelimit.v3.RateLimitService/Other", "/no.Such/Method", "/", "/x", "//", envoy.MethodPath+"/x"))
	add(&c, ":authority", "weir")
	add(&c, "te", choose("trailers", "-"))
	add(&c, "content-type", choose("application/grpc", "application/grpc+proto", "application/grpc;x", "text/plain", "-", "application/grpcx"))
	add(&c, "grpc-timeout", choose("-", "5S", "99999999H", "100000u", "1X", "123456789S", "S", ""))
	encoding := choose("-", "identity", "gzip", "snappy")
	add(&c, "grpc-encoding", encoding)
	add(&c, "user-agent", choose("-", "fuzz"))
	add(&c, "x-some-bin", choose("-", "AAA", "AA=="))
	length := from.next()<<3 | from.next()&7
	body := from.take(length)
	flag, claimed := byte(0), len(body)
	if odd {
		flag = byte([]int{0, 0, 0, 1, 2, 255}[from.next()%6])
		if encoding == "gzip" || encoding == "snappy" {
			flag = 1 // grpc-go refuses an encoding that it does not know even if the message is not compressed
		}
		claimed += []int{0, 0, 0, 0, -1, 1, 5, 1 << 20}[from.next()%8]
	}
	c.message = binary.BigEndian.AppendUint32([]byte{flag}, uint32(max(0, claimed))) //nolint:gosec // small
	c.message = append(c.message, body...)
	for range from.next() % 4 {
		c.cuts = append(c.cuts, from.next()%(len(c.message)+1))
	}
	if odd && from.next()%8 == 1 {
		c.message = c.message[:from.next()%6]
		c.cuts = nil
	}
	return c
}

// play sends a script on a connection of its own, one call after the other, and says what came of each.
func play(ctx context.Context, address string, s script) ([]string, error) {
	connection, err := (&net.Dialer{Timeout: fuzzPatience}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(fuzzPatience)); err != nil {
		return nil, err
	}
	var out, block bytes.Buffer
	framer := http2.NewFramer(&out, connection)
	framer.AllowIllegalReads = true
	encoder, decoder := hpack.NewEncoder(&block), hpack.NewDecoder(4096, nil)
	out.WriteString(http2.ClientPreface)
	if err := framer.WriteSettings(); err != nil {
		return nil, err
	}
	outcomes := make([]string, 0, len(s.calls))
	for i, c := range s.calls {
		id := uint32(2*i + 1) //nolint:gosec // few
		block.Reset()
		for _, field := range c.fields {
			if err := encoder.WriteField(field); err != nil {
				return nil, err
			}
		}
		if err := c.write(framer, id, block.Bytes()); err != nil {
			return nil, err
		}
		_, err := connection.Write(out.Bytes())
		out.Reset()
		if err != nil {
			return append(outcomes, "ended"), nil
		}
		outcome, err := hear(framer, decoder, id)
		if err != nil {
			return nil, fmt.Errorf("call %d: %w", i, err)
		}
		if outcomes = append(outcomes, outcome); outcome == "ended" {
			break
		}
	}
	return outcomes, nil
}

func (c *scriptedCall) write(framer *http2.Framer, id uint32, block []byte) error {
	first, rest := block, []byte(nil)
	if c.split {
		first, rest = block[:len(block)/2], block[len(block)/2:]
	}
	err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndHeaders: !c.split})
	if c.split {
		err = errors.Join(err, framer.WriteContinuation(id, true, rest))
	}
	at := 0
	for _, cut := range c.cuts {
		if cut > at {
			err = errors.Join(err, framer.WriteData(id, false, c.message[at:cut]))
			at = cut
		}
	}
	last := c.message[at:]
	if c.padding > 0 {
		err = errors.Join(err, framer.WriteDataPadded(id, !c.alone, last, make([]byte, c.padding)))
	} else {
		err = errors.Join(err, framer.WriteData(id, !c.alone, last))
	}
	if c.alone {
		err = errors.Join(err, framer.WriteData(id, true, nil))
	}
	return err
}

// hear reads until a call has ended.
func hear(framer *http2.Framer, decoder *hpack.Decoder, id uint32) (string, error) {
	fields, data := map[string]string{}, []byte(nil)
	for {
		f, err := framer.ReadFrame()
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout():
			return "", errors.New("no answer")
		case errors.Is(err, io.EOF), err != nil:
			return "ended", nil //nolint:nilerr // that is what came of it
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			found, err := decoder.DecodeFull(f.HeaderBlockFragment())
			if err != nil {
				return "", err
			}
			if f.StreamID != id {
				continue
			}
			for _, field := range found {
				fields[field.Name] = field.Value
			}
			if f.StreamEnded() {
				return outcome(fields, data), nil
			}
		case *http2.DataFrame:
			if f.StreamID != id {
				continue
			}
			data = append(data, f.Data()...)
			if f.StreamEnded() {
				return outcome(fields, data), nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return outcome(fields, data), nil
			}
		case *http2.GoAwayFrame:
			return "ended", nil
		}
	}
}

// outcome is what a caller makes of an answer: the reply, or the code that says why there is none.
func outcome(fields map[string]string, data []byte) string {
	switch status := fields["grpc-status"]; {
	case fields[":status"] == "":
		return "reset"
	case fields[":status"] != "200":
		return "HTTP " + fields[":status"] // that it is not gRPC says more than what a code would
	case status == "0":
		return fmt.Sprintf("HTTP %s, reply %x", fields[":status"], data)
	case status != "":
		return fmt.Sprintf("HTTP %s, code %s", fields[":status"], status)
	default:
		return "HTTP " + fields[":status"]
	}
}

// Whatever a client asks, in whatever frames and with whatever header, both fronts answer the same.
func FuzzBothFronts(f *testing.F) {
	for _, request := range generate(7, 8) {
		length := min(len(request), 2047)
		call := append([]byte{0, byte(length >> 3), byte(length & 7)}, request[:length]...)
		f.Add(append(bytes.Clone(call), call...))
		for how := byte(0); how < 32; how += 3 {
			odd := append([]byte{how, 40, 0, 1, 2, 3, 4, 5, 6, 7}, call[1:]...)
			f.Add(append(odd, call...))
		}
	}
	fast, oracle := startBoth(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s := readScript(data)
		got, err := play(t.Context(), fast, s)
		if err != nil {
			t.Fatalf("the fast front: %v\n%v", err, s)
		}
		want, err := play(t.Context(), oracle, s)
		if err != nil {
			t.Fatalf("grpc-go: %v\n%v", err, s)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("answered %q\nby grpc-go %q\n%v", got, want, s)
		}
	})
}

package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// session is one connection with its stream.
type session struct {
	client *Client
	sink   Sink
	held   *resources // what is in force
	// opened tells that there was a stream, brought that rules of it came into force.
	opened, brought bool

	stream  discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	version string // of what was accepted last on this stream
	refusal string // why the response before was refused; empty: it was not
	pause   time.Duration
}

// run follows one stream until it breaks or ctx ends.
func (s *session) run(ctx context.Context) error {
	options := &s.client.options
	conn, err := s.client.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if len(options.Headers) > 0 {
		ctx = metadata.NewOutgoingContext(ctx, metadata.New(options.Headers))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.stream, err = discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx); err != nil {
		return readable(err)
	}
	s.opened = true
	s.client.up(ctx)
	if err := s.send(&discovery.DiscoveryRequest{Node: s.client.node}); err != nil {
		return err
	}
	for {
		response, err := s.stream.Recv()
		if status.Code(err) == codes.ResourceExhausted {
			return fmt.Errorf("%w: if a message was too large, raise rules.xds.max_message_bytes from %d", readable(err), options.MaxMessageBytes)
		}
		if err != nil {
			return readable(err)
		}
		if err := s.answer(ctx, response); err != nil {
			return err
		}
	}
}

// answer puts a response in force, or refuses it, and says so.
func (s *session) answer(ctx context.Context, response *discovery.DiscoveryResponse) error {
	request := &discovery.DiscoveryRequest{ResponseNonce: response.GetNonce()}
	err := s.take(response)
	if err == nil {
		s.refusal, s.pause = "", 0
		s.version = response.GetVersionInfo()
		s.brought = true
		s.client.options.Observer.ControlPlaneResponse(true)
	} else {
		s.client.options.Observer.ControlPlaneResponse(false)
		text := nack(err)
		if err := s.hesitate(ctx, text); err != nil {
			return err
		}
		request.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: text}
	}
	request.VersionInfo = s.version
	return s.send(request)
}

// take compiles a response and puts it in force.
func (s *session) take(response *discovery.DiscoveryResponse) error {
	options := &s.client.options
	var next *resources
	var err error
	if response.GetTypeUrl() != TypeURL {
		err = fmt.Errorf("the response is of type %q: send %s", printable(response.GetTypeUrl()), TypeURL)
	} else {
		next, err = s.held.compile(options.Rules, response.GetResources())
	}
	if err != nil {
		if s.refusal != nack(err) { // one that is sent again and again is told once
			s.sink.Refuse(fmt.Errorf("version %q of the control plane's rules: %w", printable(response.GetVersionInfo()), err))
		}
		return err
	}
	version := printable(response.GetVersionInfo())
	if version == "" {
		version = "none" // it must not be empty
	}
	if err := s.sink.Put(next.table, version); err != nil {
		return err
	}
	s.held = next
	return nil
}

// The pauses before the same refusal is sent again.
const (
	minHesitation = 100 * time.Millisecond
	maxHesitation = time.Second
)

// hesitate waits before a refusal that says the same as the one before: a control plane that answers each NACK by the same rules must
// not make a loop of it. The wait bounds how late a right set is noticed.
func (s *session) hesitate(ctx context.Context, refusal string) error {
	if s.refusal != refusal {
		s.refusal, s.pause = refusal, 0
		return nil
	}
	s.pause = min(max(2*s.pause, minHesitation), maxHesitation)
	timer := time.NewTimer(s.pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-s.stream.Context().Done():
		return readable(s.stream.Context().Err())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *session) send(request *discovery.DiscoveryRequest) error {
	request.TypeUrl = TypeURL
	if err := s.stream.Send(request); err != nil && !errors.Is(err, io.EOF) { // EOF: Recv tells why
		return readable(err)
	}
	return nil
}

// maxNACK bounds the bytes of a NACK's text.
const maxNACK = 4096

// nack is the text of a refusal: as many whole problems as fit.
func nack(err error) string {
	text := err.Error()
	if len(text) <= maxNACK {
		return text
	}
	end := strings.LastIndexByte(text[:maxNACK], '\n')
	if end < 0 {
		end = maxNACK
	}
	return strings.ToValidUTF8(text[:end], "") + fmt.Sprintf("\nand %d more", 1+strings.Count(text[end+1:], "\n"))
}

// readable leaves out the frame that package status puts around an error's text.
func readable(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the control plane has ended the stream")
	}
	if s, ok := status.FromError(err); ok {
		return fmt.Errorf("%s: %s", s.Code(), printable(s.Message()))
	}
	return err
}

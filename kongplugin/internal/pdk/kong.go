// Package pdk asks Kong about the request of an event, and tells it what to answer. Each call is a round trip to the nginx
// worker that waits in the event, so the fewest calls win.
//
// It is the part of Kong's Plugin Development Kit that this plugin needs, over the messages of go-pdk. Two things differ.
// What a client controls is read as bytes, because go-pdk's strings refuse what is not UTF-8, and a client must not be able
// to make a call fail. And Exit does what must be done before it by itself.
package pdk

import (
	"errors"
	"fmt"
	"time"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/kongplugin/internal/wire"
	"github.com/weirhq/weir/pkg/respond"
)

// ErrReply is wrapped by the error of a call whose answer cannot be read.
var ErrReply = errors.New("unexpected answer from Kong")

// exitLinger is how long after Exit a connection is kept for Kong to close, which it does at the end of the request.
const exitLinger = 10 * time.Second

// Kong is the other side of one event. It is for one goroutine at a time.
type Kong struct {
	conn   *wire.Conn
	calls  int
	exited bool
}

// New returns the Kong that waits at the other end of conn.
func New(conn *wire.Conn) *Kong { return &Kong{conn: conn} }

// Exited reports whether the event has ended with an answer to the client. Nothing can be asked any more then.
func (k *Kong) Exited() bool { return k.exited }

// ask makes one call. The answer is valid until the next one.
func (k *Kong) ask(method string, args proto.Message) ([]byte, error) {
	if k.exited {
		return nil, fmt.Errorf("%s: the event has ended", method)
	}
	var text []byte
	if args != nil {
		var err error
		if text, err = proto.Marshal(args); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
	}
	k.calls++
	k.conn.WriteFrame([]byte(method))
	k.conn.WriteFrame(text)
	if err := k.conn.Flush(); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	answer, err := k.conn.ReadFrame()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return answer, nil
}

func (k *Kong) askFor(method string, args, out proto.Message) error {
	answer, err := k.ask(method, args)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s: %w: %w", method, ErrReply, err)
	}
	return nil
}

// text asks for a string of any bytes; "" if there is none.
func (k *Kong) text(method string, args proto.Message) (string, error) {
	var out kong_plugin_protocol.ByteString // on the wire the same as String
	err := k.askFor(method, args, &out)
	return string(out.GetV()), err
}

// ForwardedIP is the client's address, as Kong's trusted_ips and real_ip_header find it.
func (k *Kong) ForwardedIP() (string, error) { return k.text("kong.client.get_forwarded_ip", nil) }

// Consumer is the consumer as whom the client is authenticated; the Id is empty if it is not.
func (k *Kong) Consumer() (*kong_plugin_protocol.Consumer, error) {
	out := &kong_plugin_protocol.Consumer{}
	return out, k.askFor("kong.client.get_consumer", nil, out)
}

// Credential is the id of the credential by which the client is authenticated; "" if it is not.
func (k *Kong) Credential() (string, error) {
	var out kong_plugin_protocol.AuthenticatedCredential
	err := k.askFor("kong.client.get_credential", nil, &out)
	return out.GetId(), err
}

// Route is the route that the request matched.
func (k *Kong) Route() (*kong_plugin_protocol.Route, error) {
	out := &kong_plugin_protocol.Route{}
	return out, k.askFor("kong.router.get_route", nil, out)
}

// Service is the service that the request goes to; the Id is empty if the route has none.
func (k *Kong) Service() (*kong_plugin_protocol.Service, error) {
	out := &kong_plugin_protocol.Service{}
	return out, k.askFor("kong.router.get_service", nil, out)
}

// Header is the first request header of this name; "" if there is none.
func (k *Kong) Header(name string) (string, error) {
	return k.text("kong.request.get_header", &kong_plugin_protocol.String{V: name})
}

// Path is the request's path as it came, without the query.
func (k *Kong) Path() (string, error) { return k.text("kong.request.get_path", nil) }

// Method is the request's method, in capitals.
func (k *Kong) Method() (string, error) { return k.text("kong.request.get_method", nil) }

// RawQuery is the request's query as it came. There is kong.request.get_query_arg, but Kong fails the request when it is asked
// for an argument that has no value (?key), which a client could use.
func (k *Kong) RawQuery() (string, error) { return k.text("kong.request.get_raw_query", nil) }

// RequestID is Kong's id of the request, the same when Kong runs a plugin again; "" before Kong 3.5.
func (k *Kong) RequestID() (string, error) {
	return k.text("kong.nginx.get_var", &kong_plugin_protocol.String{V: "kong_request_id"})
}

// Headers are the values of some request headers, by their names in small letters, for one call. Of several headers with one
// name the values are joined by commas. Kong shows the first 100 headers.
func (k *Kong) Headers(names ...string) (map[string]string, error) {
	answer, err := k.ask("kong.request.get_headers", &kong_plugin_protocol.Int{V: 100})
	if err != nil {
		return nil, err
	}
	found, err := pick(answer, names)
	if err != nil {
		return nil, fmt.Errorf("kong.request.get_headers: %w: %w", ErrReply, err)
	}
	return found, nil
}

// SetHeaders sets headers of the response.
func (k *Kong) SetHeaders(headers []respond.Header) error {
	_, err := k.ask("kong.response.set_headers", wrap(headers))
	return err
}

// Exit answers the client and ends the event. It returns when Kong has closed the connection, which it does at the end of the
// request without having answered: whatever is left to do must be done before.
func (k *Kong) Exit(status int, body []byte, headers []respond.Header) error {
	text, err := proto.Marshal(&kong_plugin_protocol.ExitArgs{Status: int32(status), Body: body, Headers: wrap(headers)})
	if err != nil {
		return fmt.Errorf("kong.response.exit: %w", err)
	}
	k.calls++
	k.exited = true
	k.conn.WriteFrame([]byte("kong.response.exit"))
	k.conn.WriteFrame(text)
	if err := k.conn.Flush(); err != nil {
		return fmt.Errorf("kong.response.exit: %w", err)
	}
	k.conn.SetDeadline(time.Now().Add(exitLinger))
	k.conn.Await()
	return nil
}

// wrap writes headers as Kong reads them. Names must differ.
func wrap(headers []respond.Header) *structpb.Struct {
	fields := make(map[string]*structpb.Value, len(headers))
	for _, h := range headers {
		fields[h.Name] = structpb.NewStringValue(h.Value)
	}
	return &structpb.Struct{Fields: fields}
}

package kong

import (
	"errors"
	"fmt"
	"strings"

	"github.com/Kong/go-pdk/server/kong_plugin_protocol"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// errExited ends the coroutine of a request that a plugin has answered.
var errExited = errors.New("exited")

// answer does what Kong does for a call in the access phase. A nil from Lua is an empty frame.
func answer(method string, args []byte, request *Request, response *Response) ([]byte, error) {
	switch method {
	case "kong.client.get_forwarded_ip":
		return text(args, request.IP)
	case "kong.client.get_consumer":
		if request.Consumer == "" {
			return nil, noArgs(args)
		}
		return reply(args, &kong_plugin_protocol.Consumer{Id: request.Consumer, Username: request.Username, CustomId: "custom-" + request.Consumer})
	case "kong.client.get_credential":
		if request.Credential == "" {
			return nil, noArgs(args)
		}
		return reply(args, &kong_plugin_protocol.AuthenticatedCredential{Id: request.Credential, ConsumerId: request.Consumer})
	case "kong.router.get_route":
		return reply(args, &kong_plugin_protocol.Route{Id: request.Route, Name: "name-of-" + request.Route, Protocols: []string{"http"}})
	case "kong.router.get_service":
		if request.Service == "" {
			return nil, noArgs(args)
		}
		return reply(args, &kong_plugin_protocol.Service{Id: request.Service, Name: "name-of-" + request.Service, Host: request.Service + ".internal"})
	case "kong.request.get_path":
		return text(args, request.Path)
	case "kong.request.get_method":
		return text(args, request.Method)
	case "kong.request.get_raw_query":
		return text(args, request.Query)
	case "kong.request.get_header":
		name, err := argument(args)
		if err != nil {
			return nil, err
		}
		return text(nil, header(request.Headers, name))
	case "kong.request.get_headers":
		return headers(args, request.Headers)
	case "kong.nginx.get_var":
		name, err := argument(args)
		if err != nil {
			return nil, err
		}
		if name != "kong_request_id" {
			return nil, fmt.Errorf("nginx has no variable %q here", name)
		}
		return text(nil, request.ID)
	case "kong.response.set_headers":
		var fields structpb.Struct
		if err := proto.Unmarshal(args, &fields); err != nil {
			return nil, err
		}
		return nil, setHeaders(response, &fields)
	case "kong.response.exit":
		return nil, exit(args, response)
	default:
		return nil, errors.New("no method of Kong, or not in the access phase")
	}
}

func exit(args []byte, response *Response) error {
	var exit kong_plugin_protocol.ExitArgs
	if err := proto.Unmarshal(args, &exit); err != nil {
		return err
	}
	if exit.GetStatus() < 100 || exit.GetStatus() > 599 {
		return fmt.Errorf("code must be a number between 100 and 599, not %d", exit.GetStatus())
	}
	response.Status, response.Body = int(exit.GetStatus()), string(exit.GetBody())
	if err := setHeaders(response, exit.GetHeaders()); err != nil {
		return err
	}
	return errExited
}

func setHeaders(response *Response, fields *structpb.Struct) error {
	for name, value := range fields.GetFields() {
		text, ok := value.GetKind().(*structpb.Value_StringValue)
		if !ok {
			return fmt.Errorf("invalid value in %q: got %T", name, value.GetKind())
		}
		if strings.ContainsAny(name+text.StringValue, "\r\n\x00") {
			return fmt.Errorf("header %q would break the response", name)
		}
		response.Headers[name] = text.StringValue
	}
	return nil
}

func noArgs(args []byte) error { return proto.Unmarshal(args, &emptypb.Empty{}) }

func reply(args []byte, message proto.Message) ([]byte, error) {
	if err := noArgs(args); err != nil {
		return nil, err
	}
	return proto.Marshal(message)
}

// text answers with a string. Lua's strings are bytes, which lua-protobuf writes as they are.
func text(args []byte, value string) ([]byte, error) {
	if value == "" {
		return nil, noArgs(args)
	}
	return reply(args, &kong_plugin_protocol.ByteString{V: []byte(value)})
}

func argument(args []byte) (string, error) {
	var name kong_plugin_protocol.String
	err := proto.Unmarshal(args, &name)
	return name.GetV(), err
}

func header(headers map[string]string, name string) string {
	for key, value := range headers {
		if strings.EqualFold(key, strings.ReplaceAll(name, "_", "-")) {
			return value
		}
	}
	return ""
}

func headers(args []byte, all map[string]string) ([]byte, error) {
	var most kong_plugin_protocol.Int
	if err := proto.Unmarshal(args, &most); err != nil {
		return nil, err
	}
	if most.GetV() < 1 || most.GetV() > 1000 {
		return nil, fmt.Errorf("max_headers must be >= 1 and <= 1000, not %d", most.GetV())
	}
	return marshalHeaders(all), nil
}

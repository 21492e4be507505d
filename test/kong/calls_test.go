package kong_test

import (
	"encoding/base64"
	"slices"
	"testing"

	"github.com/weirhq/weir/test/kong"
)

const (
	askIP      = "kong.client.get_forwarded_ip"
	askHeaders = "kong.request.get_headers"
	askVar     = "kong.nginx.get_var"
	setHeaders = "kong.response.set_headers"
	exit       = "kong.response.exit"
)

// token is a bearer token with these claims; nobody checks its signature.
func token(claims string) string {
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	return "Bearer " + part(`{"alg":"none"}`) + "." + part(claims) + ".c2lnbmF0dXJl"
}

// Each call is a round trip, and what an event costs. A request that passes takes two: who is it, and its headers. A denial
// takes as many with a fixed error_format.
func TestCalls(t *testing.T) {
	node := kong.Start(t, 1)
	someone := kong.Request{
		ID: "0123456789abcdef", IP: "192.0.2.1", Method: "GET", Path: "/orders", Query: "user=7", Route: "r1", Service: "s1",
		Consumer: "c1", Username: "ann", Credential: "k1", Headers: map[string]string{"X-User": "u1", "Authorization": token(`{"sub":"ann"}`)},
	}
	nobody := kong.Request{ID: "0123456789abcdef", IP: "192.0.2.1", Method: "GET", Path: "/"}
	for name, c := range map[string]struct {
		values  map[string]any
		request kong.Request
		asks    []string // besides the last call
	}{
		"consumer":         {map[string]any{"limit_by": "consumer"}, someone, []string{"kong.client.get_consumer"}},
		"credential":       {map[string]any{"limit_by": "credential"}, someone, []string{"kong.client.get_credential"}},
		"ip":               {map[string]any{"limit_by": "ip"}, someone, []string{askIP}},
		"service":          {map[string]any{"limit_by": "service"}, someone, []string{"kong.router.get_service"}},
		"route":            {map[string]any{"limit_by": "route"}, someone, []string{"kong.router.get_route"}},
		"header":           {map[string]any{"limit_by": "header", "header_name": "x-user"}, someone, []string{"kong.request.get_header"}},
		"path":             {map[string]any{"limit_by": "path"}, someone, []string{"kong.request.get_path"}},
		"method":           {map[string]any{"limit_by": "method"}, someone, []string{"kong.request.get_method"}},
		"query_arg":        {map[string]any{"limit_by": "query_arg", "query_arg": "user"}, someone, []string{"kong.request.get_raw_query"}},
		"jwt_claim":        {map[string]any{"limit_by": "jwt_claim", "claim_name": "sub"}, someone, []string{"kong.request.get_header"}},
		"no consumer":      {map[string]any{"limit_by": "consumer"}, nobody, []string{"kong.client.get_consumer", askIP}},
		"compound":         {map[string]any{"compound_identifier": []string{"ip", "route"}}, someone, []string{askIP, "kong.router.get_route"}},
		"request id":       {map[string]any{"limit_by": "ip", "request_id": true}, someone, []string{askIP, askVar}},
		"cost from header": {map[string]any{"limit_by": "ip", "cost_header": "x-cost"}, someone, []string{askIP, "kong.request.get_header"}},
	} {
		t.Run(name, func(t *testing.T) {
			values := embedded(c.values)
			values["year"], values["error_format"] = 1, "json" // a window that does not end between two requests
			config := configure(values)
			for _, last := range []string{setHeaders, exit} {
				c.request.ID += "x" // another request
				response := must(t, node.Workers[0], config, &c.request)
				if want := append(slices.Clone(c.asks), last); !slices.Equal(response.Calls, want) {
					t.Errorf("calls %v, want %v", response.Calls, want)
				}
			}
		})
	}
	t.Run("negotiated denial", func(t *testing.T) {
		config := configure(embedded(map[string]any{"limit_by": "ip", "year": 1}))
		must(t, node.Workers[0], config, &someone)
		response := must(t, node.Workers[0], config, &someone)
		if want := []string{askIP, askHeaders, askVar, exit}; !slices.Equal(response.Calls, want) {
			t.Errorf("calls %v, want %v", response.Calls, want)
		}
	})
	t.Run("nothing to tell", func(t *testing.T) {
		config := configure(embedded(map[string]any{"limit_by": "ip", "year": 1, "hide_client_headers": true}))
		if response := must(t, node.Workers[0], config, &someone); !slices.Equal(response.Calls, []string{askIP}) {
			t.Errorf("calls %v, want only %s", response.Calls, askIP)
		}
	})
	t.Run("one source for several entries", func(t *testing.T) {
		config := configure(map[string]any{"fault_tolerant": true, "mode": "embedded", "rules_path": rulesFile(t), "descriptors": []any{
			map[string]any{"entries": []any{
				map[string]any{"key": "plan", "source": "consumer", "field": "username"},
				map[string]any{"key": "user", "source": "consumer"},
			}},
			map[string]any{"entries": []any{map[string]any{"key": "user", "source": "consumer"}}},
		}})
		if response := must(t, node.Workers[0], config, &someone); !slices.Equal(response.Calls, []string{"kong.client.get_consumer", setHeaders}) {
			t.Errorf("calls %v", response.Calls)
		}
	})
}

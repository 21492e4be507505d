package bench

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
)

// Header fields that the keys of a request through Envoy are in.
const (
	firstHeader  = "x-key-1"
	secondHeader = "x-key-2"
)

// object is one of JSON.
type object = map[string]any

// envoyBootstrap is the configuration of an Envoy that listens on a free port of the loopback interface, asks address for the
// limits of every request, and answers itself what is allowed.
func envoyBootstrap(dir string, address Address, options Options) ([]byte, error) {
	limiter, err := envoyEndpoint(address)
	if err != nil {
		return nil, err
	}
	upstream := object{"pipe": object{"path": filepath.Join(dir, "upstream.sock")}}
	filter := object{
		"name": "envoy.filters.http.ratelimit",
		"typed_config": object{
			"@type":  "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
			"domain": options.Workload.Domain, "timeout": fmt.Sprintf("%.9fs", options.Timeout.Seconds()),
			"failure_mode_deny": true, // so that a request that was not decided is not taken for one that was allowed
			"rate_limit_service": object{
				"transport_api_version": "V3", "grpc_service": object{"envoy_grpc": object{"cluster_name": "limiter"}},
			},
		},
	}
	return json.MarshalIndent(object{
		"admin": object{"address": object{"pipe": object{"path": filepath.Join(dir, "admin.sock")}}},
		"static_resources": object{
			"listeners": []object{
				envoyListener("ingress", object{"socket_address": object{"address": "127.0.0.1", "port_value": 0}}, filter, object{
					"match": object{"prefix": "/"},
					"route": object{"cluster": "upstream", "rate_limits": envoyLimits(options.Workload)},
				}),
				envoyListener("upstream", upstream, nil, object{
					"match": object{"prefix": "/"}, "direct_response": object{"status": 200, "body": object{"inline_string": "ok\n"}},
				}),
			},
			"clusters": []object{
				envoyCluster("limiter", limiter, object{"http2_protocol_options": object{}}),
				envoyCluster("upstream", upstream, object{"http_protocol_options": object{}}),
			},
		},
	}, "", " ")
}

func envoyEndpoint(address Address) (object, error) {
	if address.Unix() {
		path, err := filepath.Abs(address.address)
		return object{"pipe": object{"path": path}}, err
	}
	host, text, err := net.SplitHostPort(address.address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("address %q: Envoy needs the port as a number", address)
	}
	return object{"socket_address": object{"address": host, "port_value": port}}, nil
}

func envoyListener(name string, address, filter, route object) object {
	filters := []object{{
		"name": "envoy.filters.http.router", "typed_config": object{
			"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
		},
	}}
	if filter != nil {
		filters = append([]object{filter}, filters...)
	}
	return object{
		"name": name, "address": address,
		"filter_chains": []object{{"filters": []object{{
			"name": "envoy.filters.network.http_connection_manager", "typed_config": object{
				"@type":       "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"stat_prefix": name, "http_filters": filters,
				"route_config": object{"virtual_hosts": []object{{"name": "all", "domains": []string{"*"}, "routes": []object{route}}}},
			},
		}}}},
	}
}

func envoyCluster(name string, address, protocol object) object {
	kind := "STATIC"
	if socket, ok := address["socket_address"].(object); ok {
		if host, ok := socket["address"].(string); ok && net.ParseIP(host) == nil {
			kind = "STRICT_DNS"
		}
	}
	most := object{"max_connections": 100_000, "max_requests": 100_000, "max_pending_requests": 100_000}
	return object{
		"name": name, "type": kind, "connect_timeout": "5s",
		"circuit_breakers": object{"thresholds": []object{most}},
		"typed_extension_protocol_options": object{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": object{
			"@type":                "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
			"explicit_http_config": protocol,
		}},
		"load_assignment": object{"cluster_name": name, "endpoints": []object{{
			"lb_endpoints": []object{{"endpoint": object{"address": address}}},
		}}},
	}
}

// envoyLimits makes of a request's header the descriptors that the workload has.
func envoyLimits(w Workload) []object {
	of := func(action object) object { return object{"actions": []object{action}} }
	header := func(name, key string) object {
		return of(object{"request_headers": object{"header_name": name, "descriptor_key": key}})
	}
	hot := of(object{"generic_key": object{"descriptor_key": w.HotKey, "descriptor_value": "00000000"}})
	switch w.Kind {
	case Hot:
		return []object{hot}
	case Over:
		return []object{header(firstHeader, w.OverKey)}
	case Three:
		return []object{hot, header(firstHeader, w.UniformKey), header(secondHeader, w.UniformKey)}
	default:
		return []object{header(firstHeader, w.UniformKey)}
	}
}

package kong

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"gopkg.in/yaml.v3"
)

// Declarative is what a Front needs of a declarative configuration of Kong.
type Declarative struct {
	Services []struct {
		Name   string
		URL    string
		Routes []struct {
			Name      string
			Paths     []string
			StripPath *bool `yaml:"strip_path"`
			Plugins   []struct {
				Name   string
				Config map[string]any
			}
		}
	}
}

// Front starts the node's proxy: an HTTP server that routes by a declarative configuration, runs the plugin's access phase and
// passes on what it lets through. at has the address for each host:port that the file names. It returns the proxy's URL.
func (n *Node) Front(path string, at map[string]string) string {
	n.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	var file Declarative
	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(&file); err != nil {
		n.t.Fatalf("%s: %v", path, err)
	}
	f := &front{t: n.t, node: n}
	for _, service := range file.Services {
		upstream, err := url.Parse(service.URL)
		if err != nil {
			n.t.Fatalf("%s: service %s: %v", path, service.Name, err)
		}
		upstream.Host = address(n.t, at, upstream.Host)
		for _, each := range service.Routes {
			if each.StripPath == nil || *each.StripPath {
				n.t.Fatalf("%s: route %s strips its path, which this front does not", path, each.Name)
			}
			r := route{name: each.Name, service: service.Name, proxy: httputil.NewSingleHostReverseProxy(upstream)}
			for _, pattern := range each.Paths {
				expression, isExpression := strings.CutPrefix(pattern, "~")
				if !isExpression {
					expression = regexp.QuoteMeta(pattern)
				}
				r.paths = append(r.paths, regexp.MustCompile("^(?:"+expression+")"))
			}
			for _, plugin := range each.Plugins {
				if plugin.Name != Name {
					n.t.Fatalf("%s: route %s has the plugin %s, which this front does not run", path, each.Name, plugin.Name)
				}
				if grpc, ok := plugin.Config["grpc"].(map[string]any); ok {
					redirect(n.t, at, grpc)
				}
				config := Configure("plugin-of-"+each.Name, plugin.Config)
				config.Route = each.Name
				r.plugins = append(r.plugins, config)
			}
			f.routes = append(f.routes, r)
		}
	}
	server := httptest.NewServer(f)
	n.t.Cleanup(server.Close)
	return server.URL
}

// redirect makes a plugin ask the address that its server has here.
func redirect(t testing.TB, at map[string]string, grpc map[string]any) {
	t.Helper()
	host, port, err := net.SplitHostPort(address(t, at, fmt.Sprintf("%v:%v", grpc["host"], grpc["port"])))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	grpc["host"], grpc["port"] = host, number
}

func address(t testing.TB, at map[string]string, named string) string {
	t.Helper()
	if at[named] == "" {
		t.Fatalf("Kong's configuration names %s, which is not here", named)
	}
	return at[named]
}

type route struct {
	name, service string
	paths         []*regexp.Regexp // in the order of the file; in it regular expressions stand before prefixes, as Kong takes them
	plugins       []*Config
	proxy         *httputil.ReverseProxy
}

type front struct {
	t      testing.TB
	node   *Node
	routes []route
	served atomic.Int64
}

func (f *front) route(path string) *route {
	for i := range f.routes {
		for _, pattern := range f.routes[i].paths {
			if pattern.MatchString(path) {
				return &f.routes[i]
			}
		}
	}
	return nil
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := f.route(r.URL.Path)
	if route == nil {
		http.Error(w, `{"message":"no Route matched with those values"}`, http.StatusNotFound)
		return
	}
	served := f.served.Add(1)
	worker := f.node.Workers[served%int64(len(f.node.Workers))]
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	request := &Request{
		ID: fmt.Sprintf("%032x", served), IP: ip, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Route: route.name,
		Service: route.service, Headers: make(map[string]string),
	}
	for name, values := range r.Header {
		request.Headers[name] = strings.Join(values, ",")
	}
	for _, plugin := range route.plugins {
		response, err := worker.Access(plugin, request)
		if err != nil {
			f.t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
			http.Error(w, `{"message":"An unexpected error occurred"}`, http.StatusInternalServerError)
			return
		}
		defer response.Finish()
		for name, value := range response.Headers {
			w.Header().Set(name, value)
		}
		if response.Denied() {
			w.WriteHeader(response.Status)
			if _, err := w.Write([]byte(response.Body)); err != nil {
				f.t.Logf("%s %s: %v", r.Method, r.URL.Path, err)
			}
			return
		}
	}
	route.proxy.ServeHTTP(w, r)
}

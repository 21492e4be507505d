package packaging

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/test/servers"
)

// kongFile is what matters here of Kong's declarative configuration.
type kongFile struct {
	Services []struct {
		URL    string
		Routes []kongRoute
	}
}

type kongRoute struct {
	Name    string
	Paths   []string
	Plugins []struct {
		Name   string
		Config kongConfig
	}
}

type kongConfig struct {
	GRPC struct {
		Host string
		Port int
	}
	Domain      string
	Descriptors []struct {
		Entries []struct{ Key, Source, Value string }
	}
}

func loadKong(t *testing.T) kongFile {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(servers.Root(t), "examples", "kong", "kong.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var file kongFile
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	return file
}

// routeFor returns the first route with a path that fits, as Kong's router does for regular expressions.
func (f *kongFile) routeFor(t *testing.T, path string) kongRoute {
	t.Helper()
	for _, service := range f.Services {
		for _, route := range service.Routes {
			for _, pattern := range route.Paths {
				if expression, ok := strings.CutPrefix(pattern, "~"); ok && regexp.MustCompile("^"+expression).MatchString(path) {
					return route
				}
			}
		}
	}
	t.Fatalf("Kong has no route for %s", path)
	return kongRoute{}
}

// The hosts in Kong's configuration are services of the compose file, which mounts it, publishes Kong's port, and starts Kong
// with the plugin.
func TestComposeKong(t *testing.T) {
	project := loadCompose(t)
	kong := project.Services["kong"]
	if kong.Build == nil || kong.Build.Dockerfile != "examples/kong/Dockerfile" {
		t.Fatalf("kong is built by %+v", kong.Build)
	}
	mounted := ""
	for _, volume := range kong.Volumes {
		if strings.HasSuffix(volume.Source, filepath.Join("examples", "kong", "kong.yml")) {
			mounted = volume.Target
		}
	}
	if config := kong.Environment["KONG_DECLARATIVE_CONFIG"]; config == nil || *config != mounted || mounted == "" {
		t.Errorf("kong reads %v, mounted is %q", config, mounted)
	}
	file := loadKong(t)
	for _, service := range file.Services {
		upstream, err := url.Parse(service.URL)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := project.Services[upstream.Hostname()]; !ok {
			t.Errorf("no service is called %q", upstream.Hostname())
		}
		for _, route := range service.Routes {
			for _, plugin := range route.Plugins {
				if host, port := plugin.Config.GRPC.Host, plugin.Config.GRPC.Port; host != "weir" || port != 50051 {
					t.Errorf("route %s asks %s:%d", route.Name, host, port)
				}
			}
		}
	}
	_, _, third := demoURLs(t)
	demo, err := url.Parse(third[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(kong.Ports) != 1 || kong.Ports[0].Published != demo.Port() {
		t.Errorf("the demo asks port %s, published is %v", demo.Port(), kong.Ports)
	}
}

// What Kong's route asks about is what Envoy's asks about: the same rule, and so the same counter.
func TestKongAndEnvoyShareALimit(t *testing.T) {
	first, _, third := demoURLs(t)
	demo, err := url.Parse(third[0])
	if err != nil {
		t.Fatal(err)
	}
	if envoys, err := url.Parse(first[0]); err != nil || envoys.Path != demo.Path {
		t.Errorf("the demo asks Envoy for %v and Kong for %s", envoys, demo.Path)
	}
	file := loadKong(t)
	route := file.routeFor(t, demo.Path)
	config := route.Plugins[0].Config
	var entries []ratelimit.Entry
	for _, entry := range config.Descriptors[0].Entries {
		value := map[string]string{"value": entry.Value, "method": "GET", "ip": "127.0.0.1"}[entry.Source]
		if value == "" {
			t.Fatalf("entry %+v has no value here", entry)
		}
		entries = append(entries, ratelimit.Entry{Key: entry.Key, Value: value})
	}
	table, err := rules.Load([]string{filepath.Join(servers.Root(t), "config", "rules")}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	match := table.Match(config.Domain, entries)
	if match.Rule == nil || match.Default || len(match.Rule.Limits) == 0 {
		t.Fatalf("%v in domain %s matches %+v", entries, config.Domain, match)
	}
	bootstrap, err := os.ReadFile(filepath.Join(servers.Root(t), "envoy", "bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range config.Descriptors[0].Entries {
		if !strings.Contains(string(bootstrap), entry.Key) || !strings.Contains(string(bootstrap), entry.Value) {
			t.Errorf("Envoy sends no %s=%s", entry.Key, entry.Value)
		}
	}
}

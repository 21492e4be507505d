package kong_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/test/kong"
	"github.com/weirhq/weir/test/servers"
)

// declarative is what matters here of a declarative configuration.
type declarative struct {
	Services []struct {
		Routes []struct {
			Name    string
			Plugins []struct {
				Name   string
				Config map[string]any
			}
		}
	}
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(mustRead(t, filepath.Join(servers.Root(t), path)))))
	if err := decoder.Decode(into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		t.Errorf("%s: more than one document: %v", path, err)
	}
}

// Every plugin config that is shipped works, as the plugin says itself: a faulty one is logged when it starts.
func TestShippedConfigs(t *testing.T) {
	node := kong.Start(t, 1)
	plugins := 0
	try := func(name string, config map[string]any) {
		plugins++
		c := configure(config)
		before := len(node.Process().Log())
		must(t, node.Workers[0], c, &kong.Request{ID: name, IP: "192.0.2.1", Path: "/", Method: "GET", Route: "r", Service: "s"})
		if added := node.Process().Log()[before:]; strings.Contains(added, "cannot be used") {
			t.Errorf("%s: %s", name, added)
		}
	}
	for _, path := range []string{"kongplugin/testdata/kong.yml", "examples/kong/kong.yml"} {
		var file declarative
		readYAML(t, path, &file)
		for _, service := range file.Services {
			for _, route := range service.Routes {
				for _, plugin := range route.Plugins {
					if plugin.Name != kong.Name {
						t.Errorf("%s: plugin %s", path, plugin.Name)
					}
					// Nobody answers there; a short deadline, since names of containers take long not to be found.
					if grpc, ok := plugin.Config["grpc"].(map[string]any); ok {
						grpc["host"], grpc["port"] = "127.0.0.1", servers.FreePort(t)
					}
					try(path+" "+route.Name, plugin.Config)
				}
			}
		}
	}
	var manifest struct {
		Kind, Plugin string
		Config       map[string]any
	}
	readYAML(t, "examples/kong/kongplugin.yaml", &manifest)
	if manifest.Kind != "KongPlugin" || manifest.Plugin != kong.Name {
		t.Errorf("the manifest is a %s for %s", manifest.Kind, manifest.Plugin)
	}
	manifest.Config["grpc"].(map[string]any)["host"] = "127.0.0.1"
	try("manifest", manifest.Config)
	if plugins < 12 {
		t.Errorf("%d plugins were tried", plugins)
	}
}

// The image and the Helm values tell Kong the same three things about the plugin's process, and agree on where the socket is.
func TestPluginServerSettings(t *testing.T) {
	var values struct{ Env map[string]string }
	readYAML(t, "examples/kong/values.yaml", &values)
	dockerfile := mustRead(t, filepath.Join(servers.Root(t), "examples/kong/Dockerfile"))
	image := make(map[string]string)
	for line := range strings.Lines(dockerfile) {
		line = strings.TrimSuffix(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "ENV ")), " \\")
		if name, value, ok := strings.Cut(line, "="); ok && strings.HasPrefix(name, "KONG_") {
			image[strings.ToLower(strings.TrimPrefix(name, "KONG_"))] = strings.Trim(value, `"`)
		}
	}
	for name, settings := range map[string]struct {
		env    map[string]string
		prefix string
	}{"image": {image, "/usr/local/kong"}, "helm": {values.Env, "/kong_prefix/"}} {
		key := "pluginserver_" + strings.ReplaceAll(kong.Name, "-", "_")
		start := "/usr/local/bin/" + kong.Name + " -kong-prefix " + settings.prefix
		for setting, want := range map[string]string{
			"plugins":            "bundled," + kong.Name,
			"pluginserver_names": kong.Name,
			key + "_socket":      filepath.Join(settings.prefix, kong.Name+".socket"),
			key + "_start_cmd":   start,
			key + "_query_cmd":   start + " -dump",
		} {
			if got := settings.env[setting]; got != want {
				t.Errorf("%s: %s is %q, want %q", name, setting, got, want)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(servers.Root(t), "kongplugin", "schema.lua")); err != nil {
		t.Error(err)
	}
}

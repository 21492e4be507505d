package servers

import (
	"net"
	"os"
	"strconv"
	"testing"

	"gopkg.in/yaml.v3"
)

func readBootstrap(t testing.TB, path string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bootstrap map[string]any
	if err := yaml.Unmarshal(content, &bootstrap); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return bootstrap
}

// rewrite moves what a bootstrap listens on to free ports of the loopback interface, and lets each cluster's endpoints be
// the given addresses. Everything else is tested as it is in the file.
func rewrite(t testing.TB, bootstrap map[string]any, clusters map[string][]string) {
	t.Helper()
	setAddress(t, dig(t, bootstrap, "admin"), "127.0.0.1:0")
	resources := dig(t, bootstrap, "static_resources")
	for _, listener := range items(t, resources, "listeners") {
		setAddress(t, listener, "127.0.0.1:0")
	}
	known := map[string]bool{}
	for _, cluster := range items(t, resources, "clusters") {
		name, _ := cluster["name"].(string)
		addresses, ok := clusters[name]
		if !ok {
			t.Fatalf("the bootstrap's cluster %q has no addresses: give it some in EnvoyOptions.Clusters", name)
		}
		known[name] = true
		endpoints := make([]any, len(addresses))
		for i, address := range addresses {
			endpoint := map[string]any{}
			setAddress(t, endpoint, address)
			endpoints[i] = map[string]any{"endpoint": endpoint}
		}
		dig(t, cluster, "load_assignment")["endpoints"] = []any{map[string]any{"lb_endpoints": endpoints}}
	}
	for name := range clusters {
		if !known[name] {
			t.Fatalf("the bootstrap has no cluster %q", name)
		}
	}
}

func setAddress(t testing.TB, object map[string]any, address string) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("address %s: %v", address, err)
	}
	object["address"] = map[string]any{"socket_address": map[string]any{"address": host, "port_value": port}}
}

// dig returns an object inside another.
func dig(t testing.TB, object map[string]any, key string) map[string]any {
	t.Helper()
	inner, ok := object[key].(map[string]any)
	if !ok {
		t.Fatalf("the bootstrap has no object %q where one is expected", key)
	}
	return inner
}

// items returns the objects of a list inside an object.
func items(t testing.TB, object map[string]any, key string) []map[string]any {
	t.Helper()
	list, _ := object[key].([]any)
	objects := make([]map[string]any, len(list))
	for i, item := range list {
		inner, ok := item.(map[string]any)
		if !ok {
			t.Fatalf("the bootstrap's %s[%d] is not an object", key, i)
		}
		objects[i] = inner
	}
	return objects
}

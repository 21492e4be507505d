package rollingswap

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// endpoints is the file from which Envoy takes the replicas' addresses, as an orchestrator's control plane would tell it.
type endpoints struct {
	t     *testing.T
	path  string
	envoy *servers.EnvoyServer
}

// newEnvoy starts an Envoy whose cluster ratelimit follows a file.
func newEnvoy(t *testing.T, upstream *servers.UpstreamServer, replicas []*replica) (*servers.EnvoyServer, *endpoints) {
	t.Helper()
	e := &endpoints{t: t, path: filepath.Join(t.TempDir(), "endpoints.json")}
	e.write(replicas)
	e.envoy = servers.Envoy(t, servers.EnvoyOptions{
		Bootstrap: filepath.Join("test", "rollingswap", "testdata", "envoy.yaml"),
		Clusters:  map[string][]string{"ratelimit": nil, "echo": {upstream.Addr()}},
		Edit: func(bootstrap map[string]any) {
			resources, _ := bootstrap["static_resources"].(map[string]any)
			clusters, _ := resources["clusters"].([]any)
			for _, item := range clusters {
				if cluster, _ := item.(map[string]any); cluster["name"] == "ratelimit" {
					delete(cluster, "load_assignment")
					cluster["type"] = "EDS"
					cluster["eds_cluster_config"] = map[string]any{"eds_config": map[string]any{"path_config_source": map[string]any{"path": e.path}}}
				}
			}
		},
	})
	e.await(len(replicas))
	return e.envoy, e
}

// set makes these all the replicas and waits until Envoy knows.
func (e *endpoints) set(replicas []*replica) {
	e.t.Helper()
	e.write(replicas)
	e.await(len(replicas))
}

func (e *endpoints) await(count int) {
	e.t.Helper()
	servers.Eventually(e.t, "Envoy knows "+strconv.Itoa(count)+" replicas", func() bool {
		return e.envoy.Stat("cluster.ratelimit.membership_total") == int64(count)
	})
}

func (e *endpoints) write(replicas []*replica) {
	e.t.Helper()
	members := []any{}
	for _, r := range replicas {
		host, text, _ := net.SplitHostPort(r.grpc)
		port, err := strconv.Atoi(text)
		if err != nil {
			e.t.Fatal(err)
		}
		members = append(members, map[string]any{"endpoint": map[string]any{"address": map[string]any{"socket_address": map[string]any{"address": host, "port_value": port}}}})
	}
	text, err := json.Marshal(map[string]any{"resources": []any{map[string]any{
		"@type":        "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		"cluster_name": "ratelimit",
		"endpoints":    []any{map[string]any{"lb_endpoints": members}},
	}}})
	if err != nil {
		e.t.Fatal(err)
	}
	// Envoy looks at a file that is moved to its place.
	if err := os.WriteFile(e.path+".next", text, 0o600); err != nil {
		e.t.Fatal(err)
	}
	if err := os.Rename(e.path+".next", e.path); err != nil {
		e.t.Fatal(err)
	}
}

package fastgrpc

import (
	"io"
	"net/http"
	"testing"

	"github.com/weirhq/weir/test/servers"
)

// A real Envoy calls the fast port over TLS, and checks its certificate; its health checks too.
func TestEnvoyOverTLS(t *testing.T) {
	options := servers.WeirOptions{Rules: map[string]string{"edge.yaml": `
domain: edge
descriptors:
  - {key: remote_address, limits: [{algorithm: fixed_window, limit: 5, window: 30d}]}
`}, Set: map[string]string{}}
	authority := overTLS(t, &options)
	weir, upstream := servers.Weir(t, options), servers.Upstream(t)
	envoy := servers.Envoy(t, servers.EnvoyOptions{
		Clusters: map[string][]string{"ratelimit": {weir.Fast()}, "echo": {upstream.Addr()}},
		Edit: func(bootstrap map[string]any) {
			for _, item := range bootstrap["static_resources"].(map[string]any)["clusters"].([]any) {
				cluster := item.(map[string]any)
				if cluster["name"] != "ratelimit" {
					continue
				}
				cluster["transport_socket"] = map[string]any{
					"name": "envoy.transport_sockets.tls",
					"typed_config": map[string]any{
						"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
						"common_tls_context": map[string]any{
							"alpn_protocols":     []any{"h2"}, // else Envoy offers none, which servers of HTTP/2 refuse
							"validation_context": map[string]any{"trusted_ca": map[string]any{"filename": authority.CAFile}},
						},
					},
				}
			}
		},
	})
	envoy.AwaitHealthy("ratelimit", 1)
	for i := range 8 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, envoy.URL("ingress"), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		want := http.StatusOK
		if i >= 5 {
			want = http.StatusTooManyRequests
		}
		if err != nil || response.StatusCode != want {
			t.Errorf("request %d was answered %d, %v, want %d", i, response.StatusCode, err, want)
		}
	}
	for name, want := range map[string]int64{
		"cluster.echo.ratelimit.error": 0, "cluster.echo.ratelimit.ok": 5, "cluster.echo.ratelimit.over_limit": 3, "cluster.ratelimit.ssl.fail_verify_error": 0,
	} {
		if got := envoy.Stat(name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if handshakes := envoy.Stat("cluster.ratelimit.ssl.handshake"); handshakes == 0 {
		t.Error("Envoy made no TLS handshake")
	}
}

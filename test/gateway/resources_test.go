//go:build gateway && linux

package gateway

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/test/servers"
)

const ingress = "127.0.0.1:8888"

// gatewayResources are a gateway on the ingress port and its backend.
func gatewayResources(upstream *servers.UpstreamServer) string {
	_, port, _ := strings.Cut(upstream.Addr(), ":")
	return `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, name: host, namespace: default}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: host, namespace: default}
spec:
  concurrency: 2
  provider: {type: Host, host: {envoyVersion: "` + envoyVersion + `"}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: eg, namespace: default}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: 8888}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: backend, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: ` + port + `}}]}
`
}

// route sends a host of the route's name to the backend.
func route(name string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s, namespace: default}
spec:
  parentRefs: [{name: eg}]
  hostnames: [%[1]s.example.com]
  rules: [{backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: backend}], matches: [{path: {type: PathPrefix, value: /}}]}]
`, name)
}

// policy limits routes by a rule, which is YAML in flow style. A window of a day does not end while a test counts in it, or hardly ever.
func policy(name, rule string, routes ...string) string {
	targets := make([]string, len(routes))
	for i, target := range routes {
		targets[i] = "{group: gateway.networking.k8s.io, kind: HTTPRoute, name: " + target + "}"
	}
	return fmt.Sprintf(`---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: BackendTrafficPolicy
metadata: {name: %s, namespace: default}
spec:
  targetRefs: [%s]
  rateLimit: {type: Global, global: {rules: [%s]}}
`, name, strings.Join(targets, ", "), rule)
}

// aDay is the limit of a rule.
func aDay(requests int) string {
	return fmt.Sprintf("limit: {requests: %d, unit: Day}", requests)
}

package dropin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gopkg.in/yaml.v3"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
	"github.com/weirhq/weir/pkg/rules"
	"github.com/weirhq/weir/test/servers"
)

const image = "registry.example.com/weir:latest"

// object is a manifest, or a part of one.
type object map[string]any

// at returns what stands at a path such as spec.template, whose numbers are elements of lists.
func (o object) at(t *testing.T, path string) any {
	t.Helper()
	var here any = map[string]any(o)
	for part := range strings.SplitSeq(path, ".") {
		switch node := here.(type) {
		case map[string]any:
			here = node[part]
		case []any:
			i := int(part[0] - '0')
			if i >= len(node) {
				t.Fatalf("%s: there are %d elements", path, len(node))
			}
			here = node[i]
		default:
			t.Fatalf("%s ends before %s", path, part)
		}
	}
	if here == nil {
		t.Fatalf("there is no %s", path)
	}
	return here
}

func (o object) text(t *testing.T, path string) string {
	t.Helper()
	text, ok := o.at(t, path).(string)
	if !ok {
		t.Fatalf("%s is %v, no text", path, o.at(t, path))
	}
	return text
}

// read returns the documents of an example by their kind.
func read(t *testing.T, name string) (text []byte, byKind map[string]object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(servers.Root(t), "examples", name))
	if err != nil {
		t.Fatal(err)
	}
	byKind = map[string]object{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var o map[string]any
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return text, byKind
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kind, _ := o["kind"].(string)
		byKind[kind] = o
	}
}

// into reads a part of a manifest as a message of Envoy's: unknown fields are errors.
func into(t *testing.T, part any, message proto.Message) {
	t.Helper()
	if typed, ok := part.(map[string]any); ok {
		delete(typed, "@type")
	}
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal(text, message); err != nil {
		t.Fatal(err)
	}
}

// service is what a Deployment of an example turns out to be: its settings and its rules.
type service struct {
	settings *config.Config
	table    *rules.Table
	host     string // SERVICE.NAMESPACE.svc.cluster.local
}

// deployed checks that a rate limit service's manifests agree with each other, and loads what they say.
func deployed(t *testing.T, name string) service {
	t.Helper()
	text, byKind := read(t, name)
	environment, err := dropin.ReadDeployment(text, "")
	if err != nil {
		t.Fatal(err)
	}
	if strangers := dropin.Strangers(environment.Variables); len(strangers) > 0 || len(environment.Unknown) > 0 {
		t.Errorf("%s: %v %v", name, strangers, environment.Unknown)
	}
	translated, err := dropin.Translate(environment.Variables, dropin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, notice := range translated.Notices {
		t.Errorf("%s: %s %s", name, notice.Variable, notice.Text)
	}
	loaded, err := config.Load(config.Source{Base: translated.Settings})
	if err != nil {
		t.Fatal(err)
	}
	deployment, from, balanced := byKind["Deployment"], byKind["ConfigMap"], byKind["Service"]
	pod := object(deployment.at(t, "spec.template.spec").(map[string]any))
	if got := pod.text(t, "containers.0.image"); got != image {
		t.Errorf("%s: the image is %s, want %s", name, got, image)
	}
	if got := pod.text(t, "containers.0.command.0"); got != "/bin/ratelimit" {
		t.Errorf("%s: the command is %s", name, got)
	}
	if mount := pod.text(t, "containers.0.volumeMounts.0.mountPath"); !slices.Equal(loaded.Rules.Paths, []string{mount}) {
		t.Errorf("%s: rules are looked for in %v and mounted at %s", name, loaded.Rules.Paths, mount)
	}
	if got, want := pod.text(t, "volumes.0.configMap.name"), from.text(t, "metadata.name"); got != want {
		t.Errorf("%s: the volume is of %s, the rules are in %s", name, got, want)
	}
	if got, want := balanced.at(t, "spec.selector"), deployment.at(t, "spec.template.metadata.labels"); !equal(got, want) {
		t.Errorf("%s: the service selects %v of %v", name, got, want)
	}
	for i, want := range []int{loaded.Server.Port, loaded.Server.FastPort} {
		port := object(balanced.at(t, "spec.ports").([]any)[i].(map[string]any))
		if port.at(t, "targetPort") != want || pod.at(t, "containers.0.ports").([]any)[i].(map[string]any)["containerPort"] != want {
			t.Errorf("%s: port %d is %v, weir listens on %d", name, i, port, want)
		}
	}
	if pod.at(t, "containers.0.readinessProbe.httpGet.port") != loaded.Server.Port {
		t.Errorf("%s: the probe asks another port", name)
	}

	folder := t.TempDir()
	for file, text := range from.at(t, "data").(map[string]any) {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text.(string)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, err := rules.Load([]string{folder}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, warning := range table.Warnings() {
		t.Errorf("%s: %s", name, warning)
	}
	return service{loaded, table, balanced.text(t, "metadata.name") + "." + balanced.text(t, "metadata.namespace") + ".svc.cluster.local"}
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return bytes.Equal(x, y)
}

func TestIstioExample(t *testing.T) {
	service := deployed(t, "istio/ratelimit.yaml")
	_, byKind := read(t, "istio/envoyfilter.yaml")
	filter := byKind["EnvoyFilter"]
	var limits filterv3.RateLimit
	into(t, filter.at(t, "spec.configPatches.0.patch.value.typed_config"), &limits)
	if err := limits.ValidateAll(); err != nil {
		t.Error(err)
	}
	if !slices.Equal(service.table.Domains(), []string{limits.GetDomain()}) {
		t.Errorf("the filter's domain is %s, the rules have %v", limits.GetDomain(), service.table.Domains())
	}
	if took := limits.GetTimeout().AsDuration(); took <= service.settings.Redis.Timeout() {
		t.Errorf("Envoy waits for %v, weir for Redis for %v", took, service.settings.Redis.Timeout())
	}
	if got, want := limits.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName(), "outbound|8081||"+service.host; got != want {
		t.Errorf("the cluster is %s, want %s", got, want)
	}
	var host routev3.VirtualHost
	into(t, filter.at(t, "spec.configPatches.1.patch.value"), &host)
	for _, limit := range host.GetRateLimits() {
		for _, action := range limit.GetActions() {
			if key := action.GetRequestHeaders().GetDescriptorKey(); !service.table.Knows(limits.GetDomain(), key) {
				t.Errorf("no rule is for the descriptor key %q", key)
			}
		}
	}
}

func TestContourExample(t *testing.T) {
	service := deployed(t, "contour/ratelimit.yaml")
	_, byKind := read(t, "contour/contour.yaml")
	extension, contour, proxy := byKind["ExtensionService"], byKind["ContourConfiguration"], byKind["HTTPProxy"]
	if extension.text(t, "spec.protocol") != "h2c" || extension.at(t, "spec.services.0.port") != service.settings.Server.FastPort {
		t.Errorf("the service is asked at %v", extension.at(t, "spec"))
	}
	if host := extension.text(t, "spec.services.0.name") + "." + extension.text(t, "metadata.namespace") + ".svc.cluster.local"; host != service.host {
		t.Errorf("%s is asked, the service is %s", host, service.host)
	}
	if got, want := contour.text(t, "spec.rateLimitService.extensionService.name"), extension.text(t, "metadata.name"); got != want {
		t.Errorf("Contour asks %s, the extension is %s", got, want)
	}
	domain := contour.text(t, "spec.rateLimitService.domain")
	if !slices.Equal(service.table.Domains(), []string{domain}) {
		t.Errorf("Contour's domain is %s, the rules have %v", domain, service.table.Domains())
	}
	keys := map[string]string{"genericKey": "generic_key", "remoteAddress": "remote_address"}
	for _, where := range []string{"spec.virtualhost", "spec.routes.0"} {
		for kind := range object(proxy.at(t, where+".rateLimitPolicy.global.descriptors.0.entries.0").(map[string]any)) {
			if !service.table.Knows(domain, keys[kind]) {
				t.Errorf("%s: no rule is for %s", where, kind)
			}
		}
	}
}

func TestEnvoyGatewayExample(t *testing.T) {
	_, byKind := read(t, "envoy-gateway/envoy-gateway.yaml")
	_, values := read(t, "envoy-gateway/values.yaml")
	gateway, helm := byKind["EnvoyGateway"], values[""]
	if got := gateway.text(t, "provider.kubernetes.rateLimitDeployment.container.image"); got != image {
		t.Errorf("the resource names %s", got)
	}
	if got := helm.text(t, "global.images.ratelimit.image"); got != image {
		t.Errorf("the values name %s", got)
	}
	if !equal(gateway.at(t, "rateLimit"), helm.at(t, "config.envoyGateway.rateLimit")) {
		t.Error("the resource and the values differ about rateLimit")
	}
	if got := gateway.text(t, "rateLimit.timeout"); got != "150ms" {
		t.Errorf("Envoy waits for %s", got)
	}
	// What Envoy Gateway makes of the address, as the container sees it.
	translated, err := dropin.Translate([]string{"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + gateway.text(t, "rateLimit.backend.redis.url")}, dropin.Options{})
	if err == nil {
		_, err = config.Load(config.Source{Base: translated.Settings})
	}
	if err != nil {
		t.Error(err)
	}
	_, byKind = read(t, "envoy-gateway/policy.yaml")
	if got := byKind["BackendTrafficPolicy"].text(t, "spec.rateLimit.type"); got != "Global" {
		t.Errorf("the policy's type is %s: only Global asks the service", got)
	}
}

func TestEnvoyExample(t *testing.T) {
	root := servers.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "ratelimit.env"))
	if err != nil {
		t.Fatal(err)
	}
	environment, err := dropin.ReadEnvironment(text)
	if err != nil {
		t.Fatal(err)
	}
	translated, err := dropin.Translate(environment.Variables, dropin.Options{})
	if err != nil || len(translated.Notices) > 0 {
		t.Fatal(err, translated)
	}
	loaded, err := config.Load(config.Source{Base: translated.Settings})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), path.Clean(loaded.Rules.Paths[0])+":ro") {
		t.Errorf("rules are looked for in %v, which the comment does not mount", loaded.Rules.Paths)
	}
	table, err := rules.Load([]string{filepath.Join(root, "examples", "envoy", "rules")}, rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	bootstrap, err := os.ReadFile(filepath.Join(root, "envoy", "bootstrap.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, domain := range table.Domains() {
		if !strings.Contains(string(bootstrap), "domain: "+domain+" ") {
			t.Errorf("the bootstrap does not ask for the domain %s", domain)
		}
	}
	if !strings.Contains(string(bootstrap), "port_value: 8081") || loaded.Server.FastPort != 8081 {
		t.Error("the bootstrap asks another port")
	}
}

package config

import (
	"slices"
	"strings"
	"testing"
)

func TestControlPlaneNeedsNoPaths(t *testing.T) {
	for _, test := range []struct {
		name    string
		environ []string
		want    []string
	}{
		{"neither", nil, []string{"config/rules"}},
		{"a control plane alone", []string{"WEIR_RULES_XDS_SERVER=envoy-gateway:18001"}, nil},
		{"both", []string{"WEIR_RULES_XDS_SERVER=envoy-gateway:18001", "WEIR_RULES_PATHS=config/rules"}, []string{"config/rules"}},
		{"no paths, written", []string{"WEIR_RULES_XDS_SERVER=envoy-gateway:18001", "WEIR_RULES_PATHS="}, nil},
	} {
		c, err := Load(Source{Environ: test.environ})
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if !slices.Equal(c.Rules.Paths, test.want) {
			t.Errorf("%s: paths %q, want %q", test.name, c.Rules.Paths, test.want)
		}
	}
}

func TestFaultyControlPlanes(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(*XDS)
		want  string
	}{
		{"no port", func(x *XDS) { x.Server = "envoy-gateway" }, `rules.xds.server: "envoy-gateway" is no address`},
		{"no host", func(x *XDS) { x.Server = ":18001" }, `rules.xds.server: ":18001" is no address`},
		{"no node", func(x *XDS) { x.NodeID = "" }, "rules.xds.node_id: is empty"},
		{"metadata without a name", func(x *XDS) { x.NodeMetadata = []string{"a=b", "=c"} }, `rules.xds.node_metadata: "=c" is none`},
		{"header without a value", func(x *XDS) { x.Headers = []string{"authorization"} }, "rules.xds.headers: a header is none"},
		{"header of gRPC itself", func(x *XDS) { x.Headers = []string{"grpc-timeout=1"} }, "rules.xds.headers: a header is none"},
		{"header in bytes", func(x *XDS) { x.Headers = []string{"trace-bin=1"} }, "rules.xds.headers: a header is none"},
		{"header that breaks the line", func(x *XDS) { x.Headers = []string{"a=b\r\nc: d"} }, "rules.xds.headers: a header is none"},
		{"least above most", func(x *XDS) { x.BackoffInitial = 2 * x.BackoffMax }, "rules.xds.backoff_max: 30s is less than"},
		{"shrinking pauses", func(x *XDS) { x.BackoffFactor = 0.5 }, "rules.xds.backoff_factor: 0.5 is out of range"},
		{"half a pair", func(x *XDS) { x.TLS = XDSTLS{Enabled: true, CertFile: "tls.crt"} }, "rules.xds.tls.cert_file: is set without"},
		{"TLS that is off", func(x *XDS) { x.TLS.CAFile = "ca.crt" }, "rules.xds.tls.ca_file: has no effect"},
		{"no server", func(x *XDS) { x.Server, x.NodeID = "", "me" }, "rules.xds.node_id: has no effect"},
	} {
		c := Defaults()
		c.Rules.XDS.Server = "envoy-gateway:18001"
		test.fault(&c.Rules.XDS)
		err := c.Validate()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.name, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "c: d") {
			t.Errorf("%s: the error shows a header's value", test.name)
		}
	}
	c := Defaults()
	c.Rules.XDS.Server = "[::1]:18001"
	c.Rules.XDS.Headers = []string{"Authorization=Bearer a=b"}
	c.Rules.XDS.NodeMetadata = []string{"cluster="}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

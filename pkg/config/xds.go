package config

import (
	"net"
	"strings"
	"time"
)

// XDS is the control plane that rules come from, by aggregated discovery. It is on if Server is set.
type XDS struct {
	Server          string        `yaml:"server" doc:"HOST:PORT of a control plane that gives rules by xDS (RateLimitConfig, aggregated discovery), such as envoy-gateway:18001; empty: none"`
	NodeID          string        `yaml:"node_id" doc:"What this process calls itself there; Envoy Gateway wants envoy-ratelimit, Envoy AI Gateway envoy-ai-gateway-ratelimit"`
	NodeMetadata    []string      `yaml:"node_metadata" doc:"NAME=VALUE of the metadata that go with it"`
	Headers         []string      `yaml:"headers" doc:"NAME=VALUE of each header that the stream is opened with"`
	ConnectRetry    time.Duration `yaml:"connect_retry" min:"10ms" max:"1h" doc:"Time between two attempts while the control plane cannot be reached, give or take half of it"`
	BackoffInitial  time.Duration `yaml:"backoff_initial" min:"10ms" max:"1h" doc:"Time until the first attempt after a stream broke"`
	BackoffMax      time.Duration `yaml:"backoff_max" min:"10ms" max:"24h" doc:"Longest time between two attempts"`
	BackoffFactor   float64       `yaml:"backoff_factor" min:"1" max:"100" doc:"How much longer each time is than the one before, until a set of rules comes"`
	BackoffJitter   bool          `yaml:"backoff_jitter" doc:"Take a random time between backoff_initial and the one that is due, so that replicas do not come all at once"`
	MaxMessageBytes int           `yaml:"max_message_bytes" min:"1024" max:"1073741824" doc:"Size of a message with all rules; it takes many times that in memory while it is read"`
	TLS             XDSTLS        `yaml:"tls"`
}

// XDSTLS protects the connection to the control plane.
type XDSTLS struct {
	Enabled    bool   `yaml:"enabled" doc:"Use TLS"`
	CAFile     string `yaml:"ca_file" doc:"PEM file of the CAs that the control plane's certificate must come from; empty: the system's"`
	CertFile   string `yaml:"cert_file" doc:"PEM file of the client's certificate chain, for mutual TLS; empty: none"`
	KeyFile    string `yaml:"key_file" doc:"PEM file of its key"`
	ServerName string `yaml:"server_name" doc:"Name that the control plane's certificate must have (SAN); empty: the host of server"`
}

// Enabled reports whether rules come from a control plane.
func (x *XDS) Enabled() bool { return x.Server != "" }

func (c *Config) checkXDS(k *checker) {
	x := &c.Rules.XDS
	if !x.Enabled() {
		k.unused(c, "rules.xds", "rules.xds.server is empty: set it, or remove this")
		return
	}
	if host, port, err := net.SplitHostPort(x.Server); err != nil || host == "" || !isPort(port) {
		k.fault("rules.xds.server", "%q is no address: write HOST:PORT, such as envoy-gateway:18001", x.Server)
	}
	if x.NodeID == "" {
		k.fault("rules.xds.node_id", "is empty: write the name under which the control plane keeps the rules, such as envoy-ratelimit")
	}
	for _, pair := range x.NodeMetadata {
		if name, _, found := strings.Cut(pair, "="); !found || name == "" {
			k.fault("rules.xds.node_metadata", "%q is none: write NAME=VALUE", pair)
		}
	}
	for _, pair := range x.Headers { // whose value may be a secret
		name, value, found := strings.Cut(pair, "=")
		if !found || !isHeaderName(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			k.fault("rules.xds.headers", "a header is none that gRPC can send: write NAME=VALUE, the name of letters, digits, - _ and ., not beginning with grpc-, the value of printable ASCII")
		}
	}
	if x.BackoffMax < x.BackoffInitial {
		k.fault("rules.xds.backoff_max", "%s is less than rules.xds.backoff_initial, %s: write at least that", x.BackoffMax, x.BackoffInitial)
	}
	k.pair("rules.xds.tls.cert_file", x.TLS.CertFile, "rules.xds.tls.key_file", x.TLS.KeyFile)
	if !x.TLS.Enabled {
		k.unused(c, "rules.xds.tls", "rules.xds.tls.enabled is false: write true, or remove this")
	}
}

// isHeaderName tells whether gRPC can send metadata of this name as text.
func isHeaderName(name string) bool {
	name = strings.ToLower(name)
	return name != "" && !strings.HasPrefix(name, "grpc-") && !strings.HasSuffix(name, "-bin") &&
		strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

package config

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weirhq/weir/pkg/nearest"
)

// Validate reports everything that is wrong with settings that were made by hand. The error is Problems. Load has called it.
func (c *Config) Validate() error {
	c.complete()
	if problems := c.validate(); len(problems) > 0 {
		return problems
	}
	return nil
}

// checker collects problems by setting.
type checker struct{ problems Problems }

func (k *checker) fault(path, format string, args ...any) {
	k.problems = append(k.problems, &Problem{Setting: path, Message: fmt.Sprintf(format, args...)})
}

func (c *Config) validate() Problems {
	k := &checker{}
	for _, s := range settings(c) {
		k.span(s)
	}
	c.checkServer(k)
	c.checkTLS(k)
	c.checkRules(k)
	c.checkRedis(k)
	c.checkPerSecond(k)
	c.checkDatabase(k)
	c.checkAuth(k)
	c.checkSecrets(k)
	c.checkStatsd(k)
	c.checkXDS(k)
	return k.problems
}

// span checks what the tags of a setting say.
func (k *checker) span(s setting) {
	if choices := s.choices(); choices != nil {
		words, ok := reflect.TypeAssert[[]string](s.value)
		if !ok {
			words = []string{s.value.String()}
		}
		for _, word := range words {
			if !slices.Contains(choices, word) {
				hint := ""
				if near := nearest.Name(word, choices); near != "" && word != "" {
					hint = fmt.Sprintf("; did you mean %s?", near)
				}
				k.fault(s.path, "unknown value %q: write %s%s", word, alternatives(choices), hint)
			}
		}
		return
	}
	lowest, highest := s.tag.Get("min"), s.tag.Get("max")
	if lowest == "" {
		return
	}
	if value := magnitude(s.value); !(value >= bound(lowest) && value <= bound(highest)) { // so that NaN is out of range too
		k.fault(s.path, "%s is out of range: write %s to %s", show(s.value), lowest, highest)
	}
}

func magnitude(v reflect.Value) float64 {
	if v.Kind() == reflect.Float64 {
		return v.Float()
	}
	return float64(v.Int())
}

// bound reads a min or max tag: a number or a duration.
func bound(text string) float64 {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return n
	}
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	return math.NaN() // refuses every value; a test reads all tags
}

func (c *Config) checkServer(k *checker) {
	s := &c.Server
	for _, each := range []struct{ path, host string }{
		{"server.host", s.Host}, {"server.grpc_host", s.GRPCHost}, {"server.debug_host", s.DebugHost},
	} {
		if each.host == "" || each.host == "localhost" {
			continue
		}
		if _, err := netip.ParseAddr(each.host); err != nil && !isHostname(each.host) {
			k.fault(each.path, "%q is no address: write one such as 0.0.0.0, 127.0.0.1 or ::", each.host)
		}
	}
	s.checkPorts(k)
	if len(s.Fast.Socket) > maxSocketPath {
		k.fault("server.fast.socket", "a path of %d bytes is too long for a unix socket: use at most %d", len(s.Fast.Socket), maxSocketPath)
	}
	if s.Fast.Socket != "" && s.Fast.Socket == s.GRPCSocket {
		k.fault("server.fast.socket", "%q is server.grpc_socket too: give them different paths", s.Fast.Socket)
	}
	if len(s.GRPCSocket) > maxSocketPath {
		k.fault("server.grpc_socket", "a path of %d bytes is too long for a unix socket: use at most %d", len(s.GRPCSocket), maxSocketPath)
	}
	if c.App.Name == "" {
		k.fault("app.name", "is empty: write a name such as ratelimit")
	}
}

// checkPorts refuses two listeners at one address. The same port at two different hosts is two addresses.
func (s *Server) checkPorts(k *checker) {
	http, grpc, debug := s.Host, cmp.Or(s.GRPCHost, s.Host), cmp.Or(s.DebugHost, s.Host)
	if s.Port > 0 && s.Port == s.GRPCPort && http == grpc {
		k.fault("server.grpc_port", "%d is the HTTP port too: give them different ones", s.GRPCPort)
	}
	if s.Fast.Enabled && s.FastPort > 0 && (s.FastPort == s.Port && http == grpc || s.FastPort == s.GRPCPort) {
		k.fault("server.fast_port", "%d is another listener's port too: give them different ones, or set server.fast.enabled to false", s.FastPort)
	}
	if s.EnvoyproxyEndpoints && s.DebugPort > 0 && (s.DebugPort == s.Port && http == debug ||
		grpc == debug && (s.DebugPort == s.GRPCPort || s.Fast.Enabled && s.DebugPort == s.FastPort)) {
		k.fault("server.debug_port", "%d is another listener's port too: give them different ones", s.DebugPort)
	}
}

// maxSocketPath is what sun_path of a unix socket's address holds on Linux, less the zero at its end.
const maxSocketPath = 107

func isHostname(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, func(r rune) bool {
			return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
		}) {
			return false
		}
	}
	return true
}

func (c *Config) checkTLS(k *checker) {
	t := &c.TLS
	k.pair("tls.cert_file", t.CertFile, "tls.key_file", t.KeyFile)
	if t.ClientCAFile != "" && !t.Enabled() {
		k.fault("tls.client_ca_file", "is set without tls.cert_file: set tls.cert_file and tls.key_file, or remove it")
	}
	if len(t.ClientNames) > 0 && t.ClientCAFile == "" {
		k.fault("tls.client_names", "is set without tls.client_ca_file: set it, or remove the names")
	}
	if t.HTTPClientCerts && t.ClientCAFile == "" {
		k.fault("tls.http_client_certs", "is true without tls.client_ca_file: set it, or write false")
	}
	if t.HTTPClientCerts && !t.HTTP {
		k.fault("tls.http_client_certs", "is true while tls.http is false: write true there, or false here")
	}
}

// pair checks that two settings are both there or both not.
func (k *checker) pair(path1, value1, path2, value2 string) {
	switch {
	case value1 != "" && value2 == "":
		k.fault(path1, "is set without %s: set both or none", path2)
	case value1 == "" && value2 != "":
		k.fault(path2, "is set without %s: set both or none", path1)
	}
}

// checkAuth leaves the form of URLs and claims to package auth.
func (c *Config) checkAuth(k *checker) {
	a := &c.Auth
	if a.Insecure && (a.TokensFile != "" || a.OIDC.Enabled()) {
		k.fault("auth.insecure", "is set beside auth.tokens_file or auth.oidc.issuer: choose one")
	}
	if !a.OIDC.Enabled() {
		k.unused(c, "auth.oidc", "no issuer is accepted, because auth.oidc.issuer is empty: set it, or remove this")
		return
	}
	if len(a.OIDC.Audience) == 0 || slices.Contains(a.OIDC.Audience, "") {
		k.fault("auth.oidc.audience", "is empty, or has an empty element: without an audience a token for any other service would be accepted")
	}
}

// unused reports settings of a section that is off, because a setting without effect is a mistake. Those in except have one.
func (k *checker) unused(c *Config, section, advice string, except ...string) {
	defaults := settings(Defaults())
	for i, s := range settings(c) {
		if strings.HasPrefix(s.path, section+".") && !slices.Contains(except, s.path) && show(s.value) != show(defaults[i].value) {
			k.fault(s.path, "has no effect: %s", advice)
		}
	}
}

func (c *Config) checkRules(k *checker) {
	if len(c.Rules.Paths) == 0 && !c.Rules.XDS.Enabled() {
		k.fault("rules.paths", "is empty: name the files or folders that hold rules, such as config/rules, or a control plane in rules.xds.server")
	}
	if slices.Contains(c.Rules.Paths, "") {
		k.fault("rules.paths", "has an empty path: remove it, or write . for the working directory")
	}
	if domain := c.Rules.DefaultDomain; domain == "" || strings.ContainsFunc(domain, unicode.IsControl) {
		k.fault("rules.default_domain", "%q is no domain: write a word such as k1s0", domain)
	}
	// The part of a key between { and } decides its slot in a Redis Cluster, and a reset looks for keys by their prefix.
	if prefix := c.RateLimit.KeyPrefix; prefix == "" || len(prefix) > 64 || strings.ContainsFunc(prefix, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("{}*?[]\\%|=", r)
	}) {
		k.fault("ratelimit.key_prefix", "%q cannot begin a key: write 1 to 64 letters, digits and . _ - : /", prefix)
	}
	if !c.RateLimit.EnvoyKeys() {
		for _, each := range []struct {
			path string
			set  bool
		}{
			{"ratelimit.shared_key_prefix", c.RateLimit.SharedKeyPrefix != ""},
			{"ratelimit.stop_at_limit", c.RateLimit.StopAtLimit},
		} {
			if each.set {
				k.fault(each.path, "has no effect: write ratelimit.key_format: envoyproxy, or remove this")
			}
		}
	}
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

func (c *Config) checkDatabase(k *checker) {
	d := &c.Database
	if !d.Enabled() {
		k.unused(c, "database", "it is for Postgres, and database.host is empty: set it, or remove this", "database.path")
		return
	}
	if d.Path != "" && d.Path != Defaults().Database.Path {
		k.fault("database.path", "is set beside database.host: use SQLite or Postgres")
	}
	k.pair("database.ssl_cert", d.SSLCert, "database.ssl_key", d.SSLKey)
	if d.Name == "" {
		k.fault("database.name", "is empty: write the name of the database")
	}
	if d.User == "" {
		k.fault("database.user", "is empty: write the user")
	}
	if d.MaxIdleConns > d.MaxOpenConns {
		k.fault("database.max_idle_conns", "%d is more than database.max_open_conns, %d: write at most that", d.MaxIdleConns, d.MaxOpenConns)
	}
}

func (c *Config) checkSecrets(k *checker) {
	for _, pair := range c.secrets() {
		if pair.file == "" {
			continue
		}
		if pair.secret.file == nil || pair.secret.file.path != pair.file {
			k.fault(pair.path+"_file", "is set beside %s: use one of them", pair.path)
			continue
		}
		if _, err := pair.secret.Value(); err != nil {
			k.fault(pair.path+"_file", "cannot be read: %s", err)
		}
	}
}

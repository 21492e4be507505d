package app

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// greet logs where the server listens, and tells a person what to try next.
func (a *app) greet(f *fronts, s stores, table *rules.Table) {
	addresses := make([]string, 0, len(f.grpc))
	for _, front := range f.grpc {
		addresses = append(addresses, dialable(front.listener.Addr()))
	}
	fast := make([]string, 0, len(f.fast))
	for _, front := range f.fast {
		fast = append(fast, dialable(front.listener.Addr()))
	}
	a.logger.Info("serving", "fast", fast, "grpc", addresses, "http", f.httpAddr.Addr().String(), "counters", s.name,
		"rules", table.Len(), "version", a.Build.Version)
	if a.Greeting == nil {
		return
	}
	scheme := "http"
	if f.http.TLSConfig != nil {
		scheme = "https"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\nweir %s limits requests: %s of %s, counters in %s\n\n",
		a.Build.Version, plural(table.Len(), "rule"), plural(len(table.Domains()), "domain"), s.name)
	if len(fast) > 0 {
		fmt.Fprintf(&text, "  Envoy   %s   RateLimitService v3 and health, at the least cost\n", strings.Join(fast, ", "))
	}
	if len(addresses) > 0 {
		fmt.Fprintf(&text, "  gRPC    %s   Envoy's RateLimitService v3, health, reflection\n", strings.Join(addresses, ", "))
	}
	fmt.Fprintf(&text, "  HTTP    %s://%s   /healthz /readyz /metrics\n", scheme, dialable(f.httpAddr.Addr()))
	asked := append(addresses, fast...)
	if rule := example(table); rule != nil && !a.config.TLS.Enabled() && len(asked) > 0 {
		fmt.Fprintf(&text, "\nTry it: the last of these is denied (%s)\n\n", &rule.Limits[0])
		fmt.Fprintf(&text, "  for i in $(seq %d); do bin/weir check %s %s %s; done\n",
			rule.Limits[0].Capacity()+1, asked[0], rule.Domain, exampleDescriptor(rule))
	}
	fmt.Fprintln(&text)
	_, _ = a.Greeting.Write([]byte(text.String()))
}

// maxExample is how many requests a person should have to send to see a denial.
const maxExample = 10

// example finds a rule that a person can exceed with few requests, the smallest limit first; nil if there is none.
func example(table *rules.Table) *ratelimit.Rule {
	var best *ratelimit.Rule
	for _, rule := range table.Rules() {
		if len(rule.Limits) != 1 || len(rule.Match) == 0 || rule.Shadow || rule.QuotaMode || rule.Disabled || !plain(rule) {
			continue
		}
		capacity := rule.Limits[0].Capacity()
		if capacity < 1 || capacity > maxExample || rule.Limits[0].Window.Seconds() < 10 {
			continue
		}
		if best == nil || capacity < best.Limits[0].Capacity() {
			best = rule
		}
	}
	return best
}

// plain tells whether a request that the rule matches can be written down without thinking, or quoting.
func plain(rule *ratelimit.Rule) bool {
	for _, match := range rule.Match {
		if match.Kind != ratelimit.MatchExact && match.Kind != ratelimit.MatchAny ||
			strings.ContainsAny(match.Key+match.Pattern, " \t'\"\\$`*,=;&|<>(){}[]!#~?") {
			return false
		}
	}
	return true
}

func exampleDescriptor(rule *ratelimit.Rule) string {
	entries := make([]string, 0, len(rule.Match))
	for _, match := range rule.Match {
		value := match.Pattern
		if match.Kind == ratelimit.MatchAny {
			value = "ann"
		}
		entries = append(entries, match.Key+"="+value)
	}
	return strings.Join(entries, ",")
}

// dialable is an address that this machine can connect to: an unspecified host becomes localhost.
func dialable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return address.Network() + ":" + address.String()
	}
	if tcp.IP.IsUnspecified() {
		return net.JoinHostPort("localhost", strconv.Itoa(tcp.Port))
	}
	return tcp.String()
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

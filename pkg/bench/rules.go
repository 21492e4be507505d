package bench

import (
	_ "embed"
	"fmt"
)

var (
	//go:embed rules/weir.yaml
	weirRules string
	//go:embed rules/leases.yaml
	leasesRules string
	//go:embed rules/envoyproxy.yaml
	envoyproxyRules string
)

// Rules returns the rule file that a server must have loaded to answer the workloads with their default names: for "weir",
// for "leases", which is weir with a lease of the hot key, or for "envoyproxy", which is envoyproxy/ratelimit.
func Rules(server string) (string, error) {
	switch server {
	case "weir":
		return weirRules, nil
	case "leases":
		return leasesRules, nil
	case "envoyproxy":
		return envoyproxyRules, nil
	default:
		return "", fmt.Errorf("no rules for %q: write weir, leases or envoyproxy", server)
	}
}

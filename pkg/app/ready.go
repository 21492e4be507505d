package app

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/pkg/ruleset"
)

// readyTimeout bounds all checks of one readiness answer together.
const readyTimeout = time.Second

// readiness collects what must be right before a replica should get traffic, and what an operator should know although
// it does not stop traffic. It is safe for concurrent use.
type readiness struct {
	mu     sync.Mutex
	checks []readyCheck
	// sources tells what each source of rules contributes; nil: nothing is told of them. It is set before the first answer.
	sources func() []ruleset.State
}

type readyCheck struct {
	name string
	// fatal makes the replica not ready; else the failure is only reported.
	fatal bool
	check func(context.Context) error
}

// component is one line of the answer of /readyz.
type component struct {
	Name    string `json:"name"`
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`
}

func (r *readiness) add(name string, fatal bool, check func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checks = append(r.checks, readyCheck{name, fatal, check})
}

// report runs every check, side by side, and says whether the replica is ready.
func (r *readiness) report(ctx context.Context) (bool, []component) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r.mu.Lock()
	checks := slices.Clone(r.checks)
	r.mu.Unlock()

	components := make([]component, len(checks))
	var group sync.WaitGroup
	for i, c := range checks {
		group.Go(func() {
			components[i] = component{Name: c.name, Ready: true}
			if err := c.check(ctx); err != nil {
				components[i] = component{Name: c.name, Problem: err.Error()}
			}
		})
	}
	group.Wait()
	ready := true
	for i, c := range checks {
		ready = ready && (components[i].Ready || !c.fatal)
	}
	slices.SortFunc(components, func(a, b component) int { return strings.Compare(a.Name, b.Name) })
	return ready, components
}

// ServeHTTP answers /readyz: 200 or 503, with a list of what is not right, and where the rules in force come from.
func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	ready, components := r.report(request.Context())
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	var sources []ruleset.State
	if r.sources != nil {
		sources = r.sources()
	}
	_ = json.NewEncoder(w).Encode(struct {
		Ready      bool            `json:"ready"`
		Components []component     `json:"components"`
		Rules      []ruleset.State `json:"rules,omitempty"`
	}{ready, components, sources})
}

package engine

import (
	"strings"
	"sync"

	"github.com/weirhq/weir/pkg/ratelimit"
)

const (
	keepOverrides    = 4096 // distinct overrides that are remembered
	maxOverridesName = 128  // bytes of the name of one that is
)

// overrides holds checked copies of the limits that requests bring along. Callers use their memory again and may change
// it, while a limit given to a store must never change; and checking costs more than finding.
type overrides struct {
	mu    sync.RWMutex
	known map[ratelimit.Limit][]ratelimit.Limit // nil for an invalid one
}

// intern returns a checked copy of limit, or nil if it is invalid. Beyond keepOverrides distinct ones it allocates. With
// envoyKeys the copy is counted as envoyproxy/ratelimit would count it, if it could.
func (o *overrides) intern(limit *ratelimit.Limit, envoyKeys bool) []ratelimit.Limit {
	key := *limit
	key.EnvoyKey = envoyKeys && countsLikeEnvoy(limit)
	o.mu.RLock()
	checked, ok := o.known[key]
	o.mu.RUnlock()
	if ok {
		return checked
	}
	key.Name = strings.Clone(key.Name)
	checked = []ratelimit.Limit{key}
	if checked[0].Check() != nil {
		checked = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if existing, ok := o.known[key]; ok {
		return existing
	}
	if len(o.known) < keepOverrides && len(key.Name) <= maxOverridesName {
		if o.known == nil {
			o.known = make(map[ratelimit.Limit][]ratelimit.Limit)
		}
		o.known[key] = checked
	}
	return checked
}

package ruleset

import (
	"context"
	"strings"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// Source is one place that rules come from. The set calls Load once and then Run once.
type Source interface {
	// Name is one word that metrics, logs and answers call the source.
	Name() string
	// Load puts into the slot what the source has now, if it can tell before ctx ends. It must not wait for a source that may have
	// nothing to say.
	Load(ctx context.Context, slot *Slot)
	// Run puts into the slot what the source has next, until ctx ends.
	Run(ctx context.Context, slot *Slot)
}

// The names of the sources that this package has.
const (
	FilesSource = "files"
	StoreSource = "store"
	// XDSSource is what a control plane's source is called, which is added.
	XDSSource = "xds"
)

// FromControlPlane tells whether a rule is one of a control plane's, by what its Source says.
func FromControlPlane(rule *ratelimit.Rule) bool {
	return strings.HasPrefix(rule.Source, XDSSource+":")
}

// State is what one source contributes to the rules in force.
type State struct {
	Source string `json:"source"`
	// Version is what the source calls the rules that it said last: a hash of files, the revision of a store, the version_info of
	// a control plane. Empty: it has said nothing yet.
	Version string `json:"version"`
	Rules   int    `json:"rules"`
	// Since is when this version came; zero: there is none.
	Since time.Time `json:"since,omitzero"`
	// Problem is why not all that the source has is in force; empty: it is.
	Problem string `json:"problem,omitempty"`
}

// content is what a source has said last. The zero value is nothing.
type content struct {
	table   *rules.Table    // compiled alone; nil: it was not
	sources []*rules.Source // the definitions
	version string
	count   int // rules
	since   time.Time
}

func (c *content) empty() bool { return c.version == "" }

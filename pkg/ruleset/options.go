package ruleset

import (
	"log/slog"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rules"
)

// Options are a Set's settings.
type Options struct {
	// Paths are rule files and folders, as of rules.Load. Empty: no rules come from files.
	Paths []string
	Rules rules.Options
	// Debounce is how long changes of files are gathered. 0: rules.WatcherOptions' default.
	Debounce time.Duration
	// Default limits every descriptor of every domain until there is a valid rule file, unless rules come from a control plane too.
	Default ratelimit.Limit
	// NoDefault lets every request pass until there is a valid rule file.
	NoDefault bool
	// Install puts a table in force. It is called for one table at a time.
	Install func(*rules.Table)
	// Observer is told what happens. nil: nobody is.
	Observer Observer
	// Logger is told what an operator should know. nil: nobody is.
	Logger *slog.Logger
}

// Observer is told what happens, for metrics. It must be safe for concurrent use and must not block.
type Observer interface {
	// RulesLoaded is called when rules of files or of a control plane were loaded, RulesRefused when they were not, because of
	// their errors.
	RulesLoaded()
	RulesRefused()
	// SafeDefault is called when there are no valid files at the start.
	SafeDefault()
	// RulesInForce is called after each Install, with what is in force and its hash.
	RulesInForce(rules []*ratelimit.Rule, hash string)
	// RulesFrom is called with what a source contributes: its name, its version of the rules, and how many they are.
	RulesFrom(source, version string, rules int)
	// StoredRules is called with the rules of the store that are merged in, and those that are not because a file has a rule
	// for their place.
	StoredRules(merged, overridden int)
	// RuleStoreUp is called with whether the rule store answers, after each look at it.
	RuleStoreUp(up bool)
}

type unobserved struct{}

func (unobserved) RulesLoaded()                           {}
func (unobserved) RulesRefused()                          {}
func (unobserved) SafeDefault()                           {}
func (unobserved) RulesInForce([]*ratelimit.Rule, string) {}
func (unobserved) RulesFrom(string, string, int)          {}
func (unobserved) StoredRules(int, int)                   {}
func (unobserved) RuleStoreUp(bool)                       {}

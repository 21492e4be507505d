package ruleset

import (
	"context"

	"github.com/weirhq/weir/pkg/rules"
)

// files is the source of rule files.
type files struct {
	watcher *rules.Watcher
	slot    *Slot
}

func newFiles(options *Options) *files {
	f := &files{}
	f.watcher = rules.NewWatcher(options.Paths, options.Rules, rules.WatcherOptions{
		Debounce: options.Debounce, OnLoad: f.loaded, OnError: func(err error) { f.slot.Refuse(err) }, Logger: options.Logger,
	})
	return f
}

// Name implements Source.
func (f *files) Name() string { return FilesSource }

// Load implements Source.
func (f *files) Load(_ context.Context, slot *Slot) {
	f.slot = slot
	table, err := f.watcher.Load()
	if err != nil {
		slot.Refuse(err)
		return
	}
	f.loaded(table)
}

func (f *files) loaded(table *rules.Table) {
	_ = f.slot.Put(table, short(table.Hash())) // the slot has told why not
}

// Run implements Source.
func (f *files) Run(ctx context.Context, _ *Slot) { f.watcher.Run(ctx) }

func short(hash string) string { return hash[:min(len(hash), 12)] }

package ruleset

import (
	"cmp"
	"context"
	"slices"

	"github.com/weirhq/weir/pkg/rulestore"
)

// maxChanges bounds how many audit entries are read to catch up. With more, all rules are read anew.
const maxChanges = 5 * rulestore.MaxPageSize

// caughtUp returns the stored rules after the changes that the audit table has since they were read, and its revision. ok is
// false if that cannot be told from it: too many changes, or ones that it does not have because someone wrote past the
// store. It makes the time that a change takes independent of the number of rules, as far as the database goes.
func (s *store) caughtUp(ctx context.Context, revision int64) (stored []rulestore.Rule, reached int64, ok bool) {
	entries, ok := s.since(ctx)
	if !ok || len(entries) == 0 || entries[0].Revision < revision {
		return nil, 0, false
	}
	became := make(map[string]*rulestore.Rule, len(entries)) // by ID; nil: deleted
	for i := range entries {
		entry := &entries[i]
		if _, newer := became[entry.RuleID]; newer {
			continue
		}
		rule, err := entry.Rule()
		if err != nil {
			return nil, 0, false
		}
		became[entry.RuleID] = rule
	}
	stored = make([]rulestore.Rule, 0, len(s.stored)+len(became))
	for i := range s.stored {
		rule, changed := became[s.stored[i].ID]
		switch {
		case !changed:
			stored = append(stored, s.stored[i])
		case rule != nil:
			stored = append(stored, *rule)
		}
		delete(became, s.stored[i].ID)
	}
	for _, rule := range became {
		if rule != nil {
			stored = append(stored, *rule)
		}
	}
	slices.SortFunc(stored, func(a, b rulestore.Rule) int { // as rulestore.Store.All lists them
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return stored, entries[0].Revision, true
}

// since returns the audit entries after the revision that was read last, newest first. ok is false if some may be missing.
func (s *store) since(ctx context.Context) (entries []rulestore.AuditEntry, ok bool) {
	filter := rulestore.AuditFilter{Limit: 20}
	expected := int64(unread) // the revision of the next entry, or the one after it
	for len(entries) < maxChanges {
		page, err := s.Audit(ctx, filter)
		if err != nil {
			return nil, false
		}
		for i := range page {
			entry := &page[i]
			// Each revision has at least one entry. One that is passed over was not made by the store, or its entries are gone.
			if expected != unread && entry.Revision != expected && entry.Revision != expected-1 {
				return nil, false
			}
			expected = entry.Revision
			if entry.Revision <= s.revision {
				return entries, true
			}
			entries = append(entries, *entry)
		}
		if len(page) < filter.Limit {
			return entries, s.revision == 0 && expected == 1 // from the first one on
		}
		filter.Before, filter.Limit = page[len(page)-1].Seq, rulestore.MaxPageSize
	}
	return nil, false
}

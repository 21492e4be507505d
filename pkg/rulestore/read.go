package rulestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

const ruleColumns = `id, domain, scope, pattern, enabled, version, created_at, updated_at, body`

// scanRule reads a row of ruleColumns. With ErrCorrupt all but the body has been read.
func scanRule(row interface{ Scan(...any) error }, rule *Rule) error {
	var (
		created, updated timestamp
		stored           []byte
	)
	if err := row.Scan(&rule.ID, &rule.Domain, &rule.Scope, &rule.IdentifierPattern, &rule.Enabled, &rule.Version,
		&created, &updated, &stored); err != nil {
		return err
	}
	rule.CreatedAt, rule.UpdatedAt = created.Time, updated.Time
	if err := rule.setBody(stored); err != nil {
		return fmt.Errorf("%w: rule %s (%s): %s: delete it or write it anew", ErrCorrupt, rule.ID, rule.match(), err.Error()) // its own class would blame the caller
	}
	return nil
}

// Get implements Store.
func (d *database) Get(ctx context.Context, id string) (Rule, error) {
	what := fmt.Sprintf("get rule %.64q", id)
	id, err := canonicalID(id)
	if err != nil {
		return Rule{}, fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	var rule Rule
	err = d.call(ctx, d.Timeout, what, func(ctx context.Context) error {
		err := scanRule(d.reader.QueryRowContext(ctx, `SELECT `+ruleColumns+` FROM weir_rules WHERE id = $1`, id), &rule)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrNotFound
		}
		return err
	})
	if err != nil {
		return Rule{}, err
	}
	return rule, nil
}

// List implements Store.
func (d *database) List(ctx context.Context, filter Filter) (rules []Rule, total int64, err error) {
	limit, offset, err := filter.window()
	if err != nil {
		return nil, 0, err
	}
	where := parameters{place: d.place}
	if filter.Domain != "" {
		where.add("domain = ", filter.Domain)
	}
	if filter.Scope != "" {
		where.add("scope = ", filter.Scope)
	}
	if filter.EnabledOnly {
		where.add("enabled = ", true)
	}
	if !storable(filter.Domain, MaxDomainLength) || !storable(filter.Scope, MaxScopeLength) {
		return nil, 0, nil // no rule can have it
	}
	err = d.call(ctx, d.Timeout, "list rules", func(ctx context.Context) error {
		rules, total = nil, 0
		if err := d.reader.QueryRowContext(ctx, `SELECT count(*) FROM weir_rules`+where.conditions(), where.args...).Scan(&total); err != nil {
			return err
		}
		if offset >= total {
			return nil
		}
		// The inner query needs the listing's index only, so that a late page does not read all bodies before it.
		page := `SELECT id FROM weir_rules` + where.conditions() + ` ORDER BY created_at, id` +
			` LIMIT ` + where.value(limit) + ` OFFSET ` + where.value(offset)
		rows, err := d.reader.QueryContext(ctx,
			`SELECT `+ruleColumns+` FROM weir_rules WHERE id IN (`+page+`) ORDER BY created_at, id`, where.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var rule Rule
			if err := scanRule(rows, &rule); err != nil {
				return err
			}
			rules = append(rules, rule)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, 0, err
	}
	return rules, total, nil
}

// callbackError carries a caller's own error through call unchanged.
type callbackError struct{ err error }

func (e *callbackError) Error() string { return e.err.Error() }
func (e *callbackError) Unwrap() error { return e.err }

// All implements Store.
func (d *database) All(ctx context.Context, each func(*Rule) error) (revision int64, err error) {
	var unreadable unreadableRules
	err = d.call(ctx, d.LoadTimeout, "load all rules", func(ctx context.Context) error {
		tx, err := d.reader.BeginTx(ctx, d.snapshot)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // it has only read
		unreadable = unreadableRules{}
		if d.longRead != "" {
			if _, err := tx.ExecContext(ctx, d.longRead); err != nil {
				return err
			}
		}
		if revision, err = readRevision(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, `SELECT `+ruleColumns+` FROM weir_rules ORDER BY created_at, id`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var rule Rule
			if err := scanRule(rows, &rule); errors.Is(err, ErrCorrupt) {
				unreadable.add(err)
				continue
			} else if err != nil {
				return err
			}
			if err := each(&rule); err != nil {
				return &callbackError{err}
			}
		}
		return rows.Err()
	})
	if err != nil {
		return 0, err
	}
	return revision, unreadable.err()
}

// unreadableRules are the rules that All passes over.
type unreadableRules struct {
	first error
	count int
}

func (u *unreadableRules) add(err error) {
	if u.count++; u.count == 1 {
		u.first = err
	}
}

// err names the first, because the others are likely to be from the same source.
func (u *unreadableRules) err() error {
	switch u.count {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("load all rules: %w", u.first)
	default:
		return fmt.Errorf("load all rules: %w (and %d more)", u.first, u.count-1)
	}
}

// Revision implements Store.
func (d *database) Revision(ctx context.Context) (revision int64, err error) {
	err = d.call(ctx, d.Timeout, "read the revision", func(ctx context.Context) (err error) {
		revision, err = readRevision(ctx, d.reader)
		return err
	})
	return revision, err
}

func readRevision(ctx context.Context, on interface {
	QueryRowContext(context.Context, string, ...any) *sql.Row
},
) (revision int64, err error) {
	err = on.QueryRowContext(ctx, `SELECT revision FROM weir_revision`).Scan(&revision)
	return revision, err
}

// Audit implements Store.
func (d *database) Audit(ctx context.Context, filter AuditFilter) ([]AuditEntry, error) {
	limit := filter.Limit
	if limit == 0 {
		limit = DefaultPageSize
	}
	if limit < 1 || limit > MaxPageSize {
		return nil, fmt.Errorf("list audit entries: %w: limit %d is out of range: write 1 to %d", ErrInvalid, filter.Limit, MaxPageSize)
	}
	if filter.Before < 0 {
		return nil, fmt.Errorf("list audit entries: %w: before %d is negative: give the sequence number of an entry", ErrInvalid, filter.Before)
	}
	where := parameters{place: d.place}
	if filter.RuleID != "" {
		id, err := canonicalID(filter.RuleID)
		if err != nil {
			return nil, fmt.Errorf("list audit entries: %w: %w", ErrInvalid, err)
		}
		where.add("rule_id = ", id)
	}
	if filter.Subject != "" {
		if !storable(filter.Subject, MaxActorLength) {
			return nil, nil // no entry can have it
		}
		where.add("subject = ", filter.Subject)
	}
	if filter.Before > 0 {
		where.add("seq < ", filter.Before)
	}
	var entries []AuditEntry
	err := d.call(ctx, d.Timeout, "list audit entries", func(ctx context.Context) error {
		query := `SELECT seq, revision, at, subject, request_id, action, rule_id, before, after FROM weir_audit` +
			where.conditions() + ` ORDER BY seq DESC LIMIT ` + where.value(limit)
		rows, err := d.reader.QueryContext(ctx, query, where.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var (
				entry         AuditEntry
				at            timestamp
				before, after []byte
			)
			if err := rows.Scan(&entry.Seq, &entry.Revision, &at, &entry.Subject, &entry.RequestID, &entry.Action, &entry.RuleID,
				&before, &after); err != nil {
				return err
			}
			entry.At, entry.Before, entry.After = at.Time, before, after
			entries = append(entries, entry)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

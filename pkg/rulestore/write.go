package rulestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// Create implements Store.
func (d *database) Create(ctx context.Context, rule Rule, actor Actor) (Rule, error) {
	return d.applyOne(ctx, Change{Action: Create, Rule: rule}, actor)
}

// Update implements Store.
func (d *database) Update(ctx context.Context, rule Rule, version int64, actor Actor) (Rule, error) {
	return d.applyOne(ctx, Change{Action: Update, Rule: rule, Version: version}, actor)
}

// Delete implements Store.
func (d *database) Delete(ctx context.Context, id string, version int64, actor Actor) error {
	_, err := d.applyOne(ctx, Change{Action: Delete, Rule: Rule{ID: id}, Version: version}, actor)
	return err
}

func (d *database) applyOne(ctx context.Context, change Change, actor Actor) (Rule, error) {
	what := fmt.Sprintf("%s rule %.64q", change.Action, change.Rule.ID)
	if change.Action == Create {
		what = "create rule"
	}
	rules, err := d.apply(ctx, d.Timeout, what, []Change{change}, actor)
	if refused, ok := errors.AsType[*ChangeError](err); ok { // its number says nothing when there is but one
		return Rule{}, fmt.Errorf("%s: %w", what, refused.Err)
	}
	if err != nil {
		return Rule{}, err
	}
	return rules[0], nil
}

// Apply implements Store.
func (d *database) Apply(ctx context.Context, changes []Change, actor Actor) ([]Rule, error) {
	if len(changes) > MaxChanges {
		return nil, fmt.Errorf("apply changes: %w: %d changes at once: send at most %d", ErrInvalid, len(changes), MaxChanges)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	return d.apply(ctx, d.LoadTimeout, "apply changes", changes, actor)
}

func (d *database) apply(ctx context.Context, timeout time.Duration, what string, changes []Change, actor Actor) ([]Rule, error) {
	if err := actor.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	// Before any text of the changes becomes a parameter, so that a fault is the caller's and not the database's.
	rules, err := checkChanges(changes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	err = d.call(ctx, timeout, what, func(ctx context.Context) error {
		tx, err := d.writer.BeginTx(ctx, d.begin)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // without effect after Commit, and otherwise there is an error to return already
		w := writing{ctx: ctx, database: d, tx: tx, changes: changes, rules: rules, before: map[string]Rule{}}
		if err := w.run(actor); err != nil {
			return err
		}
		return tx.Commit()
	})
	if err != nil {
		return nil, err
	}
	d.watchers.wake()
	return rules, nil
}

// checkChanges refuses what cannot be stored, and returns the changes' rules with their IDs and domains filled in.
func checkChanges(changes []Change) ([]Rule, error) {
	rules := make([]Rule, len(changes))
	seen := make(map[string]int, len(changes))
	for i, change := range changes {
		rule := change.Rule
		refuse := func(err error) ([]Rule, error) { return nil, &ChangeError{Index: i, Err: err} }
		switch change.Action {
		case Create, Update:
			if rule.Domain == "" {
				rule.Domain = DefaultDomain
			}
			if err := rule.Validate(); err != nil {
				return refuse(err)
			}
		case Delete:
		default:
			return refuse(fmt.Errorf("%w: unknown action %.64q: write %s, %s or %s", ErrInvalid, change.Action, Create, Update, Delete))
		}
		if change.Version < 0 || change.Action == Create && change.Version != 0 {
			return refuse(fmt.Errorf("%w: version %d: write the version that an update or delete expects, or 0 for any", ErrInvalid, change.Version))
		}
		if change.Action == Create && rule.ID == "" {
			id, err := uuid.NewV7() // sorted by time, which keeps the order of creations of one Apply
			if err != nil {
				return refuse(fmt.Errorf("%w: no new id: %w", ErrUnavailable, err))
			}
			rule.ID = id.String()
		}
		id, err := canonicalID(rule.ID)
		if err != nil {
			return refuse(ErrNotFound) // a rule to update or delete: Validate has seen the others
		}
		if first, twice := seen[id]; twice {
			return refuse(fmt.Errorf("%w: rule %s is also in change %d: write one of the two", ErrInvalid, id, first+1))
		}
		seen[id] = i
		rule.ID = id
		rules[i] = rule
	}
	return rules, nil
}

// chunk is how many rows one statement touches: enough to make the way to the database unimportant, and few enough
// parameters for both databases.
const chunk = 500

// writing is one transaction that makes changes.
type writing struct {
	*database
	ctx     context.Context //nolint:containedctx // lives as long as the call whose context it is
	tx      *sql.Tx
	changes []Change
	rules   []Rule          // one for each change
	before  map[string]Rule // what the updated and deleted rules were, by ID
}

func (w *writing) run(actor Actor) error {
	// Taken first, the revision's row keeps other writers out: what is read from here on stays true.
	var revision int64
	if err := w.tx.QueryRowContext(w.ctx, `UPDATE weir_revision SET revision = revision + 1 RETURNING revision`).Scan(&revision); err != nil {
		return err
	}
	now := w.Now().UTC().Truncate(time.Millisecond)
	if err := w.readBefore(); err != nil {
		return err
	}
	for i, change := range w.changes {
		if change.Action == Create {
			w.rules[i].CreatedAt, w.rules[i].UpdatedAt, w.rules[i].Version = now, now, 1
			continue
		}
		was, found := w.before[w.rules[i].ID]
		switch {
		case !found:
			return &ChangeError{i, fmt.Errorf("%w as %s", ErrNotFound, w.rules[i].ID)}
		case change.Version != 0 && change.Version != was.Version:
			return &ChangeError{i, fmt.Errorf("%w: rule %s is at version %d, not %d: read it again", ErrStale, was.ID, was.Version, change.Version)}
		}
		w.rules[i].CreatedAt, w.rules[i].UpdatedAt, w.rules[i].Version = was.CreatedAt, now, was.Version+1
	}
	for _, step := range []func() error{w.remove, w.replace, w.insert} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := w.audit(revision, now, actor); err != nil {
		return err
	}
	for i, change := range w.changes {
		if change.Action == Delete {
			w.rules[i] = Rule{}
		}
	}
	if w.notify == "" {
		return nil
	}
	_, err := w.tx.ExecContext(w.ctx, w.notify)
	return err
}

// with returns the places of the changes with this action.
func (w *writing) with(action Action) (places []int) {
	for i, change := range w.changes {
		if change.Action == action {
			places = append(places, i)
		}
	}
	return places
}

// inChunks calls f with the IDs of up to chunk of the places, and what stands for them in a statement.
func (w *writing) inChunks(places []int, f func(list string, ids []any) error) error {
	for len(places) > 0 {
		part := places[:min(chunk, len(places))]
		places = places[len(part):]
		ids := make([]any, len(part))
		for n, i := range part {
			ids[n] = w.rules[i].ID
		}
		in := parameters{place: w.place}
		if err := f(in.list(ids...), ids); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) readBefore() error {
	return w.inChunks(append(w.with(Update), w.with(Delete)...), func(list string, ids []any) error {
		rows, err := w.tx.QueryContext(w.ctx, `SELECT `+ruleColumns+` FROM weir_rules WHERE id IN (`+list+`)`, ids...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var rule Rule
			// A corrupt rule can be written anew or deleted; the audit table keeps what could be read of it.
			if err := scanRule(rows, &rule); err != nil && !errors.Is(err, ErrCorrupt) {
				return err
			}
			w.before[rule.ID] = rule
		}
		return rows.Err()
	})
}

func (w *writing) remove() error {
	return w.inChunks(w.with(Delete), func(list string, ids []any) error {
		_, err := w.tx.ExecContext(w.ctx, `DELETE FROM weir_rules WHERE id IN (`+list+`)`, ids...)
		return err
	})
}

func (w *writing) replace() error {
	places := w.with(Update)
	if len(places) == 0 {
		return nil
	}
	update, err := w.tx.PrepareContext(w.ctx, `UPDATE weir_rules
		SET domain = $2, scope = $3, pattern = $4, enabled = $5, version = $6, created_at = $7, updated_at = $8, body = $9
		WHERE id = $1`)
	if err != nil {
		return err
	}
	defer update.Close()
	for _, i := range places {
		row, err := w.row(&w.rules[i])
		if err != nil {
			return err
		}
		if _, err := update.ExecContext(w.ctx, row...); err != nil {
			if errors.Is(w.classify(err), ErrExists) {
				return &ChangeError{i, exists(&w.rules[i])}
			}
			return err
		}
	}
	return nil
}

func (w *writing) insert() error {
	places := w.with(Create)
	for len(places) > 0 {
		part := places[:min(chunk, len(places))]
		places = places[len(part):]
		values := parameters{place: w.place}
		for _, i := range part {
			row, err := w.row(&w.rules[i])
			if err != nil {
				return err
			}
			values.tuple(row...)
		}
		// A rule that is there already is passed over, so that the rest tells which one it was.
		created, err := w.insertRows(&values)
		if err != nil {
			return err
		}
		for _, i := range part {
			if !created[w.rules[i].ID] {
				return &ChangeError{i, exists(&w.rules[i])}
			}
		}
	}
	return nil
}

func (w *writing) insertRows(values *parameters) (created map[string]bool, err error) {
	rows, err := w.tx.QueryContext(w.ctx, `INSERT INTO weir_rules (`+ruleColumns+`) VALUES `+values.tuples()+
		` ON CONFLICT DO NOTHING RETURNING id`, values.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	created = make(map[string]bool, len(values.terms))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		created[id] = true
	}
	return created, rows.Err()
}

func (w *writing) audit(revision int64, at time.Time, actor Actor) error {
	for start := 0; start < len(w.changes); start += chunk {
		values := parameters{place: w.place}
		for i := start; i < min(start+chunk, len(w.changes)); i++ {
			var before, after any
			if was, found := w.before[w.rules[i].ID]; found {
				text, err := json.Marshal(was.document())
				if err != nil {
					return err
				}
				before = string(text)
			}
			if w.changes[i].Action != Delete {
				text, err := json.Marshal(w.rules[i].document())
				if err != nil {
					return err
				}
				after = string(text)
			}
			values.tuple(revision, w.timeArg(at), actor.Subject, actor.RequestID, string(w.changes[i].Action), w.rules[i].ID, before, after)
		}
		if _, err := w.tx.ExecContext(w.ctx, `INSERT INTO weir_audit (revision, at, subject, request_id, action, rule_id, before, after) VALUES `+
			values.tuples(), values.args...); err != nil {
			return err
		}
	}
	return nil
}

// row returns a rule as values of ruleColumns.
func (w *writing) row(rule *Rule) ([]any, error) {
	text, err := json.Marshal(rule.body())
	if err != nil {
		return nil, err
	}
	return []any{
		rule.ID, rule.Domain, rule.Scope, rule.IdentifierPattern, rule.Enabled, rule.Version,
		w.timeArg(rule.CreatedAt), w.timeArg(rule.UpdatedAt), string(text),
	}, nil
}

func exists(rule *Rule) error {
	return fmt.Errorf("%w: %s, or the id %s, is taken: update or delete that rule instead", ErrExists, rule.match(), rule.ID)
}

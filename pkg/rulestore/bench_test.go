package rulestore_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/weirhq/weir/pkg/rulestore"
	"github.com/weirhq/weir/test/servers"
)

const manyRules = 100_000

func BenchmarkPostgres(b *testing.B) {
	database := servers.Postgres(b).Database(b)
	benchmark(b, openPostgres(b, database, rulestore.PostgresOptions{}))
}

func BenchmarkSQLite(b *testing.B) {
	benchmark(b, openSQLite(b, filepath.Join(b.TempDir(), "rules.db"), rulestore.Options{}))
}

// benchmark measures a store of manyRules rules.
func benchmark(b *testing.B, store rulestore.Store) {
	b.Helper()
	scopes := []string{"user", "service", "endpoint", "user", "user"}
	for start := 0; start < manyRules; start += rulestore.MaxChanges {
		changes := make([]rulestore.Change, rulestore.MaxChanges)
		for i := range changes {
			r := rule(scopes[i%len(scopes)], fmt.Sprintf("id-%07d", start+i))
			r.Enabled = i%10 != 0
			changes[i] = rulestore.Change{Action: rulestore.Create, Rule: r}
		}
		if _, err := store.Apply(b.Context(), changes, tester); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			if _, err := store.All(b.Context(), func(*rulestore.Rule) error { n++; return nil }); err != nil || n < manyRules {
				b.Fatal(n, err)
			}
		}
		b.ReportMetric(float64(b.N*manyRules)/b.Elapsed().Seconds(), "rules/s")
	})
	for name, filter := range map[string]rulestore.Filter{
		"first page":     {PageSize: 100},
		"last page":      {PageSize: 100, Page: manyRules / 100},
		"scope":          {PageSize: 100, Scope: "service", Page: 100},
		"nothing":        {PageSize: 100, Scope: "nobody"},
		"scope, enabled": {PageSize: 100, Scope: "endpoint", EnabledOnly: true, Page: 150},
	} {
		b.Run("list/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := store.List(b.Context(), filter); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("revision", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.Revision(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("create", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n++
			r := rule("user", fmt.Sprintf("bench-%d-%d", b.N, n))
			if _, err := store.Create(b.Context(), r, rulestore.Actor{Subject: fmt.Sprintf("bench %p", b)}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("apply 10,000", func(b *testing.B) {
		n := 0
		for b.Loop() {
			n++
			changes := make([]rulestore.Change, rulestore.MaxChanges)
			for i := range changes {
				changes[i] = rulestore.Change{Action: rulestore.Create, Rule: rule("bulk", fmt.Sprintf("%p-%d-%d", b, n, i))}
			}
			if _, err := store.Apply(b.Context(), changes, tester); err != nil {
				b.Fatal(err)
			}
		}
	})
}

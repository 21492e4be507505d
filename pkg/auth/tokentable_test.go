package auth

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestNewToken(t *testing.T) {
	first, hash := NewToken()
	second, _ := NewToken()
	if first == second || len(first) < 40 || !strings.HasPrefix(first, "weir_") {
		t.Errorf("tokens %q and %q", first, second)
	}
	again, err := HashToken(first)
	if err != nil || again != hash {
		t.Errorf("hash %s, then %s (%v)", hash, again, err)
	}
	if token, err := fromHeader([]string{"Bearer " + first}); err != nil || token != first {
		t.Errorf("it cannot be sent: %q (%v)", token, err)
	}
}

func TestHashToken(t *testing.T) {
	// printf 01234567890123456789 | sha256sum
	const want = "sha256:4e76ad8354461437c04ef9b9b242540b6406d782ff2c3fb28afdab5b423f88fe"
	if got, err := HashToken("01234567890123456789"); err != nil || got != want {
		t.Errorf("got %s (%v), want %s", got, err, want)
	}
	for _, token := range []string{"", "short", "twenty characters but", strings.Repeat("a", MaxToken+1)} {
		if got, err := HashToken(token); err == nil {
			t.Errorf("%.30q has the hash %s", token, got)
		}
	}
}

// line is one token's entry.
func line(subject, role, token, more string) string {
	return fmt.Sprintf("  - {subject: %q, role: %s, hash: %q%s}\n", subject, role, hashOf(token), more)
}

func TestParseTokens(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	table, err := parseTokens([]byte("# who may do what\ntokens:\n" +
		line("ci", "sys_operator", "token-of-ci", "") +
		line("ci", "sys_operator", "new-token-of-ci", ", expires: 2026-01-02T03:04:06Z") +
		line("old", "sys_admin", "token-of-old", ", expires: 2026-01-02T03:04:05Z") +
		line("jörg", "sys_auditor", "token-of-jörg", "")))
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]Principal{
		"token-of-ci":     {"ci", Operator, ViaToken},
		"new-token-of-ci": {"ci", Operator, ViaToken},
		"token-of-jörg":   {"jörg", Auditor, ViaToken},
		"token-of-old":    {},
		"token-of-c":      {},
		"":                {},
	} {
		if got, ok := table.find(token, now); got != want || ok != (want != Principal{}) {
			t.Errorf("%q: got %+v, %v", token, got, ok)
		}
	}
	if table, err := parseTokens([]byte("tokens: []")); err != nil || len(table.entries) != 0 {
		t.Errorf("an empty list: %v", err)
	}
}

func TestParseTokensFaults(t *testing.T) {
	const hash = ", hash: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'"
	tests := []struct{ name, text, want string }{
		{"empty", "", "write tokens:"},
		{"no list", "tokens:", "write tokens:"},
		{"unknown key", "token: []", "write tokens:"},
		{"another key beside", "tokens: []\nSECRET: 1", "write tokens:"},
		{"no YAML", "tokens: [", "yaml"},
		{"unknown anchor", "tokens: *SECRET", "unknown anchor"},
		{"two documents", "tokens: []\n---\ntokens: []", "more than one YAML document"},
		{"unknown field", "tokens: [{SECRET: a}]", "line 1: a field is not known"},
		{"field twice", "tokens:\n- subject: a\n  subject: b", "line 3: a field is not known, there twice"},
		{"field that is a list", "tokens: [{subject: [SECRET]}]", "line 1: a field is not known, there twice, or no text"},
		{"alias", "tokens: [{subject: &a b, role: *a}]", "or no text"},
		{"role", "tokens:\n" + line("a", "SECRET", "t", ""), "line 2: role: unknown role: write one of sys_auditor"},
		{"subject", "tokens:\n" + line("a\tb", "sys_admin", "t", ""), "line 2: subject: write 1 to 256"},
		{"subject too long", "tokens:\n" + line(strings.Repeat("a", 257), "sys_admin", "t", ""), "line 2: subject: write 1 to 256"},
		{"empty subject", "tokens:\n" + line("", "sys_admin", "t", ""), "line 2: subject"},
		{"no subject", "tokens: [{role: sys_admin" + hash + "}]", "line 1: subject is missing"},
		{"twice", "tokens:\n" + line("a", "sys_admin", "t", "") + line("b", "sys_admin", "t", ""), "line 3: hash: the same as in line 2"},
		{"plain token", "tokens: [{subject: a, role: sys_admin, hash: SECRET}]", "line 1: hash: write sha256:"},
		{"token as list", "tokens: SECRET", "write tokens:"},
		{"token as entry", "tokens: [SECRET]", "line 1: this is no entry"},
		{"token as time", "tokens: [{expires: SECRET}]", "line 1: expires: write a time"},
		{"short hash", "tokens: [{subject: a, role: sys_admin, hash: 'sha256:00'}]", "line 1: hash"},
		{"too many", "tokens:\n" + strings.Repeat("  - {}\n", 1001), "1001 tokens"},
		{"all faults", "tokens:\n- {}\n- {}", "line 3: hash is missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parseTokens([]byte(tt.text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one that says %s", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error shows what may be a token: %v", err)
			}
		})
	}
}

func FuzzParseTokens(f *testing.F) {
	f.Add([]byte("tokens:\n" + line("ci", "sys_admin", "token", ", expires: 2027-01-01T00:00:00Z")))
	f.Add([]byte("tokens: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		table, err := parseTokens(text)
		if (table == nil) == (err == nil) {
			t.Fatalf("%v and %v", table, err)
		}
		if err != nil {
			return
		}
		for _, entry := range table.entries {
			if !validSubject(entry.who.Subject) || entry.who.Role == NoRole {
				t.Errorf("an entry that is not valid: %+v", entry.who)
			}
		}
	})
}

func BenchmarkTokenTable(b *testing.B) {
	table := &tokenTable{}
	for i := range 100 {
		sum, _ := parseHash(hashOf(fmt.Sprint("token", i)))
		table.entries = append(table.entries, tokenEntry{sum: sum})
	}
	b.ReportAllocs()
	for b.Loop() {
		table.find("token99", time.Time{})
	}
}

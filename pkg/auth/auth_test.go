package auth_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/auth/authtest"
)

// tokenFile writes a token file with one token for each role, and returns its path and the tokens by role.
func tokenFile(t testing.TB) (path string, tokens map[auth.Role]string) {
	t.Helper()
	text := "tokens:\n"
	tokens = map[auth.Role]string{}
	for _, role := range []auth.Role{auth.Auditor, auth.Operator, auth.Admin} {
		token, hash := auth.NewToken()
		tokens[role] = token
		text += "  - {subject: " + role.String() + "-1, role: " + role.String() + ", hash: '" + hash + "'}\n"
	}
	path = filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, tokens
}

func TestAuthorize(t *testing.T) {
	path, tokens := tokenFile(t)
	a, err := auth.New(auth.Options{TokensFile: path})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	roles := []auth.Role{auth.Auditor, auth.Operator, auth.Admin}
	for _, has := range roles {
		for _, needs := range roles {
			who, err := a.Authorize(t.Context(), tokens[has], needs)
			if want := (auth.Principal{Subject: has.String() + "-1", Role: has, Via: auth.ViaToken}); who != want {
				t.Errorf("got %+v, want %+v", who, want)
			}
			if has >= needs && err != nil {
				t.Errorf("%v is refused what needs %v: %v", has, needs, err)
			}
			if has < needs && (!errors.Is(err, auth.ErrForbidden) || !strings.Contains(err.Error(), needs.String())) {
				t.Errorf("%v is not refused what needs %v: %v", has, needs, err)
			}
		}
	}
	if _, err := a.Authorize(t.Context(), "", auth.Auditor); !errors.Is(err, auth.ErrNoToken) || !errors.Is(err, auth.ErrUnauthenticated) {
		t.Errorf("no token: %v", err)
	}
	for _, token := range []string{"unlisted", tokens[auth.Admin] + "x", tokens[auth.Admin][1:], strings.ToUpper(tokens[auth.Admin]), "a.b.c", strings.Repeat("a", auth.MaxToken+1)} {
		wantRefused(t, a, token, "unauthenticated")
	}
}

func TestNobodyIsKnownByDefault(t *testing.T) {
	a, err := auth.New(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, token := range []string{"", "x", "a.b.c"} {
		wantRefused(t, a, token, "no authentication is configured")
	}
}

func TestTokensBesideOIDC(t *testing.T) {
	issuer := authtest.New(t)
	path, tokens := tokenFile(t)
	a := oidcOnly(t, issuer, func(o *auth.Options) { o.TokensFile = path })
	wantAccepted(t, a, issuer.Token(t, "alice", "sys_auditor"), auth.Auditor)
	if who, err := a.Authenticate(t.Context(), tokens[auth.Admin]); err != nil || who.Via != auth.ViaToken {
		t.Errorf("got %+v (%v)", who, err)
	}
	if got := issuer.Fetches(); got != 1 {
		t.Errorf("%d fetches", got)
	}
	wantRefused(t, a, "unknown", "not known")
}

func TestInsecure(t *testing.T) {
	a, err := auth.New(auth.Options{Insecure: true, Listeners: []string{"127.0.0.1:8080", "unix:/run/weir.sock"}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, token := range []string{"", "x"} {
		who, err := a.Authorize(t.Context(), token, auth.Admin)
		if want := (auth.Principal{Subject: "insecure", Role: auth.Admin, Via: auth.ViaInsecure}); err != nil || who != want {
			t.Errorf("got %+v (%v)", who, err)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	path, _ := tokenFile(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	weir := []string{"weir"}
	tests := []struct {
		name    string
		options auth.Options
		want    string
	}{
		{"insecure everywhere", auth.Options{Insecure: true, Listeners: []string{"127.0.0.1:1", ":8080"}}, `":8080" can be reached from other machines`},
		{"insecure nowhere", auth.Options{Insecure: true}, "not what listens"},
		{"insecure beside tokens", auth.Options{Insecure: true, Listeners: []string{"127.0.0.1:1"}, TokensFile: path}, "choose one"},
		{"no token file", auth.Options{TokensFile: empty + "x"}, "no such file"},
		{"empty token file", auth.Options{TokensFile: empty}, empty},
		{"no issuer", auth.Options{OIDC: &auth.OIDC{Audience: weir}}, "issuer"},
		{"issuer without TLS", auth.Options{OIDC: &auth.OIDC{Issuer: "http://issuer.example", Audience: weir}}, "must begin with https://"},
		{"issuer with a password", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a:SECRET@issuer.example", Audience: weir}}, "user name or password"},
		{"keys without TLS", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", JWKSURL: "http://a.example/", Audience: weir}}, "JWKS URL"},
		{"keys that are no URL", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", JWKSURL: "https://a\x7f", Audience: weir}}, "no URL"},
		{"no audience", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example"}}, "no audience"},
		{"empty audience", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", Audience: []string{""}}}, "audience is empty"},
		{"roles claim", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", Audience: weir, RolesClaim: "a..b"}}, `"a..b" has an empty step`},
		{"CA file", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", Audience: weir, CAFile: empty}}, "no certificate"},
		{"negative interval", auth.Options{OIDC: &auth.OIDC{Issuer: "https://a.example", Audience: weir, Interval: -1}}, "negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := auth.New(tt.options)
			if !errors.Is(err, auth.ErrOptions) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one that says %s", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}

func FuzzAuthenticate(f *testing.F) {
	issuer := authtest.New(f)
	a, err := auth.New(auth.Options{OIDC: &auth.OIDC{Issuer: issuer.URL, Audience: []string{authtest.Audience}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(a.Close)
	good := issuer.Token(f, "alice", "sys_admin")
	f.Add(good)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		who, err := a.Authenticate(t.Context(), token)
		if token != good && (err == nil || who != auth.Principal{}) {
			t.Errorf("%q is %+v", token, who)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	path, tokens := tokenFile(b)
	issuer := authtest.New(b)
	a, err := auth.New(auth.Options{TokensFile: path, OIDC: &auth.OIDC{Issuer: issuer.URL, Audience: []string{authtest.Audience}}})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	for name, token := range map[string]string{"token": tokens[auth.Admin], "ES256": issuer.Token(b, "alice", "sys_admin")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := a.Authenticate(b.Context(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

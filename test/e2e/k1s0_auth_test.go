package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/auth/authtest"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
	"github.com/weirhq/weir/test/servers"
)

const ruleForAll = `{"scope":"user","identifier_pattern":"*","limit":7,"window_seconds":60}`

func TestK1s0StaticTokens(t *testing.T) {
	file, byRole := tokens(t)
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": k1s0Rules}, Set: map[string]string{"auth.tokens_file": file, "log.level": "debug"},
	})
	auditor, operator, admin := byRole[auth.Auditor], byRole[auth.Operator], byRole[auth.Admin]
	call(t, weir, http.StatusOK, "POST", "/check", "", `{"scope":"user","identifier":"ann"}`)
	call(t, weir, http.StatusUnauthorized, "GET", "/rules", "", "")
	call(t, weir, http.StatusUnauthorized, "GET", "/rules", "weir_no-such-token-0123456789", "")
	call(t, weir, http.StatusOK, "GET", "/rules", auditor, "")
	call(t, weir, http.StatusForbidden, "POST", "/rules", auditor, ruleForAll)
	rule := decoded[storedRule](t, call(t, weir, http.StatusCreated, "POST", "/rules", operator, ruleForAll, "X-Request-Id", "made-by-operator"))
	call(t, weir, http.StatusForbidden, "DELETE", "/rules/"+rule.ID, operator, "")
	if got := call(t, weir, http.StatusOK, "GET", "/audit", auditor, "").body; !strings.Contains(got, `"subject":"the-sys_operator"`) || !strings.Contains(got, `"request_id":"made-by-operator"`) {
		t.Errorf("audit: %s", got)
	}
	client := apiClient(weir)
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, operator: codes.PermissionDenied, admin: codes.OK} {
		ctx := t.Context()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		_, err := client.DeleteRule(ctx, &pb.DeleteRuleRequest{RuleId: rule.ID})
		if status.Code(err) != want {
			t.Errorf("delete over gRPC: %v, want %v", err, want)
		}
	}
	log := weir.Process().Log()
	for _, token := range byRole {
		if strings.Contains(log, token) {
			t.Error("a token is in the log")
		}
	}
	if !strings.Contains(log, "change=created") || !strings.Contains(log, "request_id=made-by-operator") {
		t.Errorf("the log does not tell of the change:\n%s", log)
	}
}

// Nobody is known to a server without settings for it, and it does not take everybody for an administrator where others can
// reach it.
func TestK1s0WithoutAuthentication(t *testing.T) {
	weir := servers.Weir(t, servers.WeirOptions{Rules: map[string]string{"rules.yaml": k1s0Rules}})
	call(t, weir, http.StatusOK, "POST", "/check", "", `{"scope":"user","identifier":"ann"}`)
	got := call(t, weir, http.StatusUnauthorized, "GET", "/rules", "", "")
	if !strings.Contains(got.body, "configure tokens or OIDC") || got.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%s %v", got.body, got.header)
	}
	output := runServe(t, "--set", "server.host=0.0.0.0", "--set", "auth.insecure=true")
	if !strings.Contains(output, "can be reached from other machines") {
		t.Errorf("%s", output)
	}
}

// A whole OpenID Connect flow: discovery, keys, roles in claims, keys that rotate, and tokens that are not good.
func TestK1s0OpenIDConnect(t *testing.T) {
	issuer := authtest.New(t)
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": k1s0Rules},
		Set: map[string]string{
			"auth.oidc.issuer": issuer.URL, "auth.oidc.audience": authtest.Audience, "auth.oidc.interval": "100ms",
			"auth.oidc.roles_claim": "realm_access.roles",
		},
	})
	list := func(token string) int {
		return rest(t.Context(), http.DefaultClient, weir, "GET", "/rules", token, "").status
	}
	if got := list(issuer.Token(t, "ann", "offline_access", "sys_auditor")); got != http.StatusOK {
		t.Errorf("an auditor: %d", got)
	}
	call(t, weir, http.StatusForbidden, "POST", "/rules", issuer.Token(t, "ann", "sys_auditor"), ruleForAll)
	call(t, weir, http.StatusCreated, "POST", "/rules", issuer.Token(t, "bob", "sys_operator"), ruleForAll)
	if got := call(t, weir, http.StatusOK, "GET", "/audit", issuer.Token(t, "ann", "sys_auditor"), "").body; !strings.Contains(got, `"subject":"bob"`) {
		t.Errorf("audit: %s", got)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+issuer.Token(t, "ann", "sys_auditor"))
	if _, err := apiClient(weir).ListRules(ctx, &pb.ListRulesRequest{}); err != nil {
		t.Errorf("over gRPC: %v", err)
	}

	for _, method := range []jwt.SigningMethod{jwt.SigningMethodRS256, jwt.SigningMethodEdDSA, jwt.SigningMethodES256} {
		issuer.Rotate(t, method)
		token := issuer.Token(t, "ann", "sys_auditor")
		servers.Eventually(t, "a token of the new key is known", func() bool { return list(token) == http.StatusOK })
	}
	faulty := map[string]func(jwt.MapClaims){
		"another issuer":   func(c jwt.MapClaims) { c["iss"] = "https://id.example.com" },
		"another audience": func(c jwt.MapClaims) { c["aud"] = "another" },
		"expired":          func(c jwt.MapClaims) { c["exp"] = time.Now().Add(-2 * time.Minute).Unix() },
		"not yet valid":    func(c jwt.MapClaims) { c["nbf"] = time.Now().Add(2 * time.Minute).Unix() },
		"no expiry":        func(c jwt.MapClaims) { delete(c, "exp") },
		"no subject":       func(c jwt.MapClaims) { delete(c, "sub") },
	}
	for name, spoil := range faulty {
		claims := issuer.Claims("ann", "sys_admin")
		spoil(claims)
		if got := list(issuer.Sign(t, claims, nil)); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone, issuer.Claims("ann", "sys_admin")).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := jwt.NewWithClaims(jwt.SigningMethodHS256, issuer.Claims("ann", "sys_admin")).SignedString([]byte("a secret of thirty-two bytes, yes"))
	if err != nil {
		t.Fatal(err)
	}
	stranger := authtest.NewKey(t, "stranger", jwt.SigningMethodES256).Sign(t, issuer.Claims("ann", "sys_admin"), nil)
	for name, token := range map[string]string{"alg none": unsigned, "HMAC": shared, "a key that the issuer does not have": stranger} {
		if got := list(token); got != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, got)
		}
	}

	// A flood of key ids asks the issuer seldom.
	before, began := issuer.Fetches(), time.Now()
	for range 300 {
		if got := list(authtest.NewKey(t, unique("kid"), jwt.SigningMethodES256).Sign(t, issuer.Claims("ann", "sys_admin"), nil)); got != http.StatusUnauthorized {
			t.Fatalf("a stranger's token: %d", got)
		}
	}
	if fetches, most := issuer.Fetches()-before, int(time.Since(began)/(100*time.Millisecond))+2; fetches > most {
		t.Errorf("300 unknown key ids led to %d fetches in %v, want at most %d", fetches, time.Since(began), most)
	}
}

func TestK1s0StartFailsWithFaultyAuthentication(t *testing.T) {
	for name, test := range map[string]struct{ setting, want string }{
		"no such token file": {"auth.tokens_file=nowhere.yaml", "nowhere.yaml"},
		"no audience":        {"auth.oidc.issuer=https://id.example.com", "auth.oidc.audience"},
	} {
		if output := runServe(t, "--set", "server.host=127.0.0.1", "--set", test.setting); !strings.Contains(output, test.want) {
			t.Errorf("%s: %s", name, output)
		}
	}
}

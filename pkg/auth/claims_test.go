package auth

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

func TestRoleFromClaims(t *testing.T) {
	tests := []struct {
		name, path, claims string
		want               Role
	}{
		{"keycloak", DefaultRolesClaim, `{"realm_access": {"roles": ["offline_access", "sys_operator"]}}`, Operator},
		{"highest of several", DefaultRolesClaim, `{"realm_access": {"roles": ["sys_auditor", "sys_admin", "sys_operator"]}}`, Admin},
		{"top level", "roles", `{"roles": ["sys_auditor"]}`, Auditor},
		{"text with spaces", "scope", `{"scope": "openid sys_auditor email"}`, Auditor},
		{"pointer to a name with dots", "/https:~1~1example.com~1roles", `{"https://example.com/roles": ["sys_admin"]}`, Admin},
		{"pointer with a tilde", "/a~0b/c", `{"a~b": {"c": "sys_admin"}}`, Admin},
		{"not there", DefaultRolesClaim, `{}`, NoRole},
		{"step that is no object", DefaultRolesClaim, `{"realm_access": "sys_admin"}`, NoRole},
		{"step that is a list", DefaultRolesClaim, `{"realm_access": [{"roles": ["sys_admin"]}]}`, NoRole},
		{"number", "roles", `{"roles": 7}`, NoRole},
		{"object", "roles", `{"roles": {"sys_admin": true}}`, NoRole},
		{"null", "roles", `{"roles": null}`, NoRole},
		{"list of other types", "roles", `{"roles": [1, null, {"a": "sys_admin"}, ["sys_admin"], "sys_auditor"]}`, Auditor},
		{"another case", "roles", `{"ROLES": ["sys_admin"], "roles": ["SYS_ADMIN"]}`, NoRole},
		{"part of a name", "roles", `{"roles": ["sys_admin2", "not_sys_admin"]}`, NoRole},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path, err := parseClaimPath(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			claims := jwt.MapClaims{}
			if err := json.Unmarshal([]byte(tt.claims), &claims); err != nil {
				t.Fatal(err)
			}
			if got := path.role(claims); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	for _, path := range []string{"", ".", "a.", "/", "/a//b", strings.Repeat("a.", 20) + "a"} {
		if _, err := parseClaimPath(path); err == nil {
			t.Errorf("the path %q is accepted", path)
		}
	}
}

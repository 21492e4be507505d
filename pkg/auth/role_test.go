package auth

import (
	"strings"
	"testing"
)

func TestRoleAllows(t *testing.T) {
	for _, role := range []Role{NoRole, Auditor, Operator, Admin} {
		for _, required := range []Role{NoRole, Auditor, Operator, Admin} {
			if got, want := role.Allows(required), role >= required; got != want {
				t.Errorf("%v allows what needs %v: %v", role, required, got)
			}
		}
	}
	if Role(200).Allows(Auditor) {
		t.Error("a role that is none allows something")
	}
}

func TestParseRole(t *testing.T) {
	for _, role := range []Role{Auditor, Operator, Admin} {
		if got, err := ParseRole(role.String()); got != role || err != nil {
			t.Errorf("%v is read as %v (%v)", role, got, err)
		}
	}
	for _, name := range []string{"", "none", "SYS_ADMIN", "sys_admin ", "root"} {
		got, err := ParseRole(name)
		if got != NoRole || err == nil || !strings.Contains(err.Error(), "sys_auditor, sys_operator, sys_admin") {
			t.Errorf("%q is read as %v (%v)", name, got, err)
		}
	}
	if got := Role(9).String(); got != "none" {
		t.Errorf("a role that is none is called %s", got)
	}
}

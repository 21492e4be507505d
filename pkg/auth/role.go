package auth

import (
	"fmt"
	"strings"
)

// Role is what a principal may do. Each role may do all that the ones before it may.
type Role uint8

// The roles.
const (
	NoRole   Role = iota // known, but may do nothing that needs a role
	Auditor              // read rules and usage
	Operator             // also create and change rules, and reset counters
	Admin                // also delete rules
)

var roleNames = [...]string{NoRole: "none", Auditor: "sys_auditor", Operator: "sys_operator", Admin: "sys_admin"}

// String returns the role's name as tokens and files spell it.
func (r Role) String() string {
	if int(r) >= len(roleNames) {
		return roleNames[NoRole]
	}
	return roleNames[r]
}

// ParseRole reads a role's name. The error lists the known names.
func ParseRole(name string) (Role, error) {
	for role := Auditor; role <= Admin; role++ {
		if roleNames[role] == name {
			return role, nil
		}
	}
	return NoRole, fmt.Errorf("unknown role: write one of %s", strings.Join(roleNames[Auditor:], ", "))
}

// Allows reports whether who has role r may do what needs the role required.
func (r Role) Allows(required Role) bool { return r >= required && r <= Admin }

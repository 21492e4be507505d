package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// DefaultRolesClaim is where Keycloak puts the roles of a realm.
const DefaultRolesClaim = "realm_access.roles"

const maxClaimDepth = 16

// claimPath leads to a claim inside others.
type claimPath []string

// parseClaimPath reads names joined by dots, or a JSON pointer (RFC 6901), which begins with a slash and can name claims
// that have dots in their names: "/https:~1~1example.com~1roles".
func parseClaimPath(text string) (claimPath, error) {
	var path claimPath
	if pointer, ok := strings.CutPrefix(text, "/"); ok {
		path = strings.Split(pointer, "/")
		unescape := strings.NewReplacer("~1", "/", "~0", "~")
		for i := range path {
			path[i] = unescape.Replace(path[i])
		}
	} else {
		path = strings.Split(text, ".")
	}
	if len(path) > maxClaimDepth {
		return nil, fmt.Errorf("the claim path %q has %d steps: use at most %d", text, len(path), maxClaimDepth)
	}
	if slices.Contains(path, "") {
		return nil, fmt.Errorf("the claim path %q has an empty step: write names joined by dots, such as %s", text, DefaultRolesClaim)
	}
	return path, nil
}

// role returns the highest role that the claims give. The claim may be a list of names or one text of names with spaces in
// between; names that are no role, and values of any other type, give none.
func (p claimPath) role(claims jwt.MapClaims) Role {
	var value any = map[string]any(claims)
	for _, name := range p {
		object, ok := value.(map[string]any)
		if !ok {
			return NoRole
		}
		value = object[name]
	}
	highest := NoRole
	take := func(name string) {
		if role, err := ParseRole(name); err == nil {
			highest = max(highest, role)
		}
	}
	switch value := value.(type) {
	case string:
		for name := range strings.FieldsSeq(value) {
			take(name)
		}
	case []any:
		for _, element := range value {
			if name, ok := element.(string); ok {
				take(name)
			}
		}
	}
	return highest
}

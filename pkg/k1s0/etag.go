package k1s0

import (
	"slices"
	"strconv"
	"strings"
)

// tagOf is a rule's version as an entity tag (RFC 9110, section 8.8.3).
func tagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// expected returns the version that If-Match asks for, 0 if it does not (RFC 9110, section 13.1.1). Of several tags it takes
// the one that the rule has.
func (c *call) expected() (int64, error) {
	sent := c.Header.Values("If-Match")
	if len(sent) == 0 {
		return 0, nil
	}
	stale := &Error{Code: CodeStale, Message: "the rule is at none of the versions in If-Match: read it again"}
	var versions []int64
	for tag := range strings.SplitSeq(strings.Join(sent, ","), ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" && len(sent) == 1 && !strings.Contains(sent[0], ",") {
			return 0, nil
		}
		text, opened := strings.CutPrefix(tag, `"`)
		text, closed := strings.CutSuffix(text, `"`)
		if version, err := strconv.ParseInt(text, 10, 64); opened && closed && err == nil && version > 0 && tag == tagOf(version) {
			versions = append(versions, version)
		} // what is no tag of ours, a weak one among them, matches nothing
	}
	switch len(versions) {
	case 0:
		return 0, c.orMissing(stale)
	case 1:
		return versions[0], nil
	}
	rule, err := c.service.Get(c.Context(), c.PathValue("id"))
	if err != nil {
		return 0, err
	}
	if !slices.Contains(versions, rule.Version) {
		return 0, stale
	}
	return rule.Version, nil
}

// orMissing returns err, or why there is no rule to which it could apply.
func (c *call) orMissing(err error) error {
	rule, missing := c.service.Get(c.Context(), c.PathValue("id"))
	if missing != nil {
		return missing
	}
	if rule.Source != SourceAPI {
		return c.service.changeable(rule.ID, 0)
	}
	return err
}

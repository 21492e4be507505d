package k1s0

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// query reads the parameters of a URL and collects what is wrong with them.
type query struct {
	values url.Values
	known  []string
	faults faults
}

func readQuery(r *http.Request) *query {
	q := &query{}
	var err error
	if q.values, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		q.faults.add("query", "cannot be read: check its percent signs and semicolons")
	}
	return q
}

// text returns a parameter, empty if it is not there.
func (q *query) text(name string) string {
	q.known = append(q.known, name)
	values := q.values[name]
	if len(values) > 1 {
		q.faults.add(name, "must come once")
	}
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

func (q *query) boolean(name string) bool {
	switch text := q.text(name); text {
	case "", "false":
		return false
	case "true":
		return true
	default:
		q.faults.add(name, "must be true or false")
		return false
	}
}

func (q *query) integer(name string, absent int64) int64 {
	text := q.text(name)
	if text == "" && !q.values.Has(name) {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.faults.add(name, "must be an integer")
		return absent
	}
	return n
}

// with joins what was wrong with the form of the parameters, and what is wrong with their values.
func (q *query) with(err error) error {
	unknown := 0
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		if slices.Contains(q.known, name) {
			continue
		}
		if unknown++; unknown > maxUnknown {
			break
		}
		if len(q.known) == 0 {
			q.faults.add(shortened(name), "is unknown: there are no parameters")
		} else {
			q.faults.add(shortened(name), "is unknown: the parameters are %s", strings.Join(q.known, ", "))
		}
	}
	if len(q.faults) == 0 {
		return err
	}
	return join(q.faults, err)
}

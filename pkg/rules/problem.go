package rules

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// ErrNoRules is wrapped by the error of Load when the files hold no domain at all. A server that has no rules yet starts
// with [Safe]; one that has some keeps them.
var ErrNoRules = errors.New("no rules")

// Problem is one thing that is wrong, or suspicious, in the rules.
type Problem struct {
	File   string // path as given, or what the source calls itself
	Line   int    // from 1; 0 where there is no line
	Column int    // from 1; 0 where there is no column
	// Message says what is wrong, Fix what to write instead.
	Message, Fix string
	// Warning tells that the rules are valid all the same.
	Warning bool

	cause error
}

// String is FILE:LINE:COLUMN: what is wrong: what to write instead.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.where())
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString(": ")
		b.WriteString(p.Fix)
	}
	return b.String()
}

func (p Problem) where() string {
	where := p.File
	if p.Line > 0 {
		where += ":" + strconv.Itoa(p.Line)
		if p.Column > 0 {
			where += ":" + strconv.Itoa(p.Column)
		}
	}
	return where
}

// Problems is the error of a load: everything that is wrong, and the warnings, sorted by file, line and column.
type Problems []Problem

// Error is one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the causes that callers can tell apart: ErrNoRules, ratelimit.ErrLimit, fs.ErrNotExist.
func (ps Problems) Unwrap() []error {
	var causes []error
	for _, p := range ps {
		if p.cause != nil {
			causes = append(causes, p.cause)
		}
	}
	return causes
}

// fatal tells whether at least one problem is more than a warning.
func (ps Problems) fatal() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// maxProblems bounds what one load reports; nobody reads more.
const maxProblems = 1000

// problemList collects problems up to maxProblems.
type problemList struct {
	list    Problems
	dropped int
}

func (l *problemList) add(problems ...Problem) {
	for _, p := range problems {
		if len(l.list) >= maxProblems {
			l.dropped++
			continue
		}
		l.list = append(l.list, p)
	}
}

// count is how many problems were added.
func (l *problemList) count() int { return len(l.list) + l.dropped }

// sorted returns the problems by file, line and column, and says how many were left out.
func (l *problemList) sorted() Problems {
	slices.SortStableFunc(l.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if l.dropped == 0 {
		return l.list
	}
	return append(l.list, Problem{
		Message: strconv.Itoa(l.dropped) + " more problems are not shown",
		Fix:     "mend these first",
		Warning: !l.list.fatal(),
	})
}

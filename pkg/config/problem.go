package config

import (
	"cmp"
	"errors"
	"slices"
	"strings"
)

// ErrInvalid is what every error about a setting's name or value is, for errors.Is.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Where   string // "FILE:LINE:COLUMN", an environment variable, a flag; "" for a default
	Setting string // its path; "" if the problem is not about one
	Message string // what is wrong, and what to write instead

	line, column int // in the file; 0 elsewhere
}

func newProblem(at place, setting, message string) *Problem {
	return &Problem{at.text, setting, message, at.line, at.column}
}

// Error returns "WHERE: SETTING: MESSAGE".
func (p *Problem) Error() string {
	var parts []string
	for _, part := range []string{p.Where, p.Setting, p.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Is reports that a Problem is ErrInvalid.
func (p *Problem) Is(target error) bool { return target == ErrInvalid }

// Problems is all that is wrong with a configuration: first what is in the file, from its top to its end, then the rest.
type Problems []*Problem

func (p Problems) sort() {
	slices.SortStableFunc(p, func(a, b *Problem) int {
		switch {
		case a.line == 0 && b.line == 0:
			return 0
		case a.line == 0:
			return 1
		case b.line == 0:
			return -1
		}
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
}

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems one by one, for errors.Is and errors.As.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

package config

import (
	"errors"
	"strings"
)

// ErrInvalid is what every error about a setting's name or value is, for errors.Is.
var ErrInvalid = errors.New("invalid configuration")

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Where   string // "FILE:LINE:COLUMN", an environment variable, a flag; "" for a default
	Setting string // its path; "" if the problem is not about one
	Message string // what is wrong, and what to write instead
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

// Problems is all that is wrong with a configuration, in the order in which it was found. It is the error of Load.
type Problems []*Problem

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

package k1s0

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/rulestore"
)

// Error is what a client is told. Its text holds nothing of the server's inside.
type Error struct {
	Code    Code
	Message string
	// Fields are all faulty fields of the request, by their names in REST.
	Fields []Field

	cause error // for logs
}

// Field is a faulty field.
type Field struct {
	Name string
	// Problem follows the name: "must be greater than 0".
	Problem string
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, which is for logs.
func (e *Error) Unwrap() error { return e.cause }

// asError finds out what a client is told of err.
func asError(err error) *Error {
	if own, ok := errors.AsType[*Error](err); ok {
		return own
	}
	tell := func(code Code, message string) *Error { return &Error{Code: code, Message: message, cause: err} }
	switch {
	case errors.Is(err, auth.ErrForbidden):
		return tell(CodeForbidden, err.Error())
	case errors.Is(err, auth.ErrUnauthenticated):
		return tell(CodeUnauthenticated, err.Error())
	case errors.Is(err, auth.ErrUnavailable):
		return tell(CodeUnavailable, auth.ErrUnavailable.Error()+": try again")
	case errors.Is(err, ratelimit.ErrConflict):
		return tell(CodeConflict, ratelimit.ErrConflict.Error()+": send a new id, or the same content")
	case errors.Is(err, rulestore.ErrStale):
		return tell(CodeStale, "the rule was changed in the meantime: read it again")
	case errors.Is(err, rulestore.ErrUnavailable):
		return tell(CodeUnavailable, "the rule store does not answer: try again")
	case errors.Is(err, rulestore.ErrCorrupt):
		return tell(CodeInternal, "a stored rule cannot be read: the server's log names it")
	case errors.Is(err, rulestore.ErrInvalid):
		return tell(CodeValidation, "the rule store cannot hold this")
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return tell(CodeUnavailable, "no answer in time: try again")
	default:
		return tell(CodeInternal, "internal error: the server's log has the request id")
	}
}

// ours tells whether an error is for the operator to look into.
func (e *Error) ours() bool { return e.Code.HTTP() >= http.StatusInternalServerError }

func ruleNotFound(id string) *Error {
	return &Error{Code: CodeRuleNotFound, Message: "rule not found: " + shortened(id)}
}

// faults collects what is wrong with a request.
type faults []Field

func (f *faults) add(name, format string, args ...any) {
	*f = append(*f, Field{Name: name, Problem: fmt.Sprintf(format, args...)})
}

// err is nil if nothing was wrong. One fault is told in the message too, for people who read no further.
func (f faults) err() error {
	switch len(f) {
	case 0:
		return nil
	case 1:
		return &Error{Code: CodeValidation, Message: f[0].message(f[0].Name), Fields: f}
	default:
		return &Error{Code: CodeValidation, Message: "validation failed", Fields: f}
	}
}

// message says what is wrong with the field, by the name that it has where the client sent it.
func (f *Field) message(name string) string { return name + " " + f.Problem }

// maxShown bounds what messages repeat of a request, in bytes.
const maxShown = 128

func shortened(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}

// asFaults returns the faulty fields that an error tells of, nil if it is of another kind.
func asFaults(err error) faults {
	var own *Error
	if err != nil && errors.As(err, &own) && own.Code == CodeValidation {
		return own.Fields
	}
	return nil
}

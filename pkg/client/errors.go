package client

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The errors by which a caller decides. Every error of a Client's calls is an *Error that is one of them, or none where a
// server says something unknown.
var (
	ErrInvalid         = errors.New("invalid request")
	ErrUnauthenticated = errors.New("unauthenticated")
	ErrForbidden       = errors.New("forbidden")
	ErrNotFound        = errors.New("no such rule")
	// ErrExists: another rule has the same scope and pattern.
	ErrExists = errors.New("the rule exists already")
	// ErrReadOnly: the rule is a rule file's.
	ErrReadOnly = errors.New("the rule is read-only")
	// ErrStale: the rule is not at the version any more that the caller has seen.
	ErrStale = errors.New("the rule was changed in the meantime")
	// ErrConflict: a check's RequestID was used before for another check.
	ErrConflict = errors.New("the request id was used before for a different request")
	// ErrUncheckable: the check cannot be made, for example because it names a limit that no rule can have.
	ErrUncheckable = errors.New("the check cannot be made")
	// ErrUnavailable: the server, or the database behind it, did not answer in time. What was to be changed MAY have been.
	ErrUnavailable = errors.New("unavailable")
	// ErrInternal: the server has met a fault of its own.
	ErrInternal = errors.New("internal error")
)

// byReason names the errors by the codes of the API, which are the same over gRPC and REST.
var byReason = map[string]error{
	"SYS_RATELIMIT_VALIDATION_ERROR": ErrInvalid,
	"SYS_RATELIMIT_ERROR":            ErrUncheckable,
	"SYS_RATELIMIT_UNAUTHENTICATED":  ErrUnauthenticated,
	"SYS_RATELIMIT_FORBIDDEN":        ErrForbidden,
	"SYS_RATELIMIT_RULE_NOT_FOUND":   ErrNotFound,
	"SYS_RATELIMIT_RULE_EXISTS":      ErrExists,
	"SYS_RATELIMIT_RULE_READ_ONLY":   ErrReadOnly,
	"SYS_RATELIMIT_RULE_STALE":       ErrStale,
	"SYS_RATELIMIT_CONFLICT":         ErrConflict,
	"SYS_RATELIMIT_UNAVAILABLE":      ErrUnavailable,
	"SYS_RATELIMIT_INTERNAL_ERROR":   ErrInternal,
}

// byCode names them where a proxy, or another version of the server, gives no reason that is known.
var byCode = map[codes.Code]error{
	codes.InvalidArgument:   ErrInvalid,
	codes.Unauthenticated:   ErrUnauthenticated,
	codes.PermissionDenied:  ErrForbidden,
	codes.NotFound:          ErrNotFound,
	codes.AlreadyExists:     ErrExists,
	codes.Aborted:           ErrStale,
	codes.Unavailable:       ErrUnavailable,
	codes.DeadlineExceeded:  ErrUnavailable,
	codes.ResourceExhausted: ErrUnavailable,
	codes.Internal:          ErrInternal,
	codes.DataLoss:          ErrInternal,
	codes.Unknown:           ErrInternal,
}

// Error is what a server, or the way to it, has answered instead of a reply.
type Error struct {
	Code codes.Code
	// Reason is the API's code (SYS_RATELIMIT_...), empty if the error is not the server's.
	Reason  string
	Message string
	// Fields are the faulty ones of the request.
	Fields []FieldError
	// RequestID is by which the server's logs find the request; may be empty.
	RequestID string

	kind error
}

// FieldError is what is wrong with one field, named as the API spells it.
type FieldError struct{ Field, Message string }

// Error is the message, the faulty fields, and the request's ID.
func (e *Error) Error() string {
	var text strings.Builder
	if e.Message == "" {
		text.WriteString(e.Code.String())
	}
	text.WriteString(e.Message)
	for i, field := range e.Fields {
		if len(e.Fields) == 1 && strings.Contains(e.Message, field.Message) {
			break // the message tells of it already
		}
		if i == 0 {
			text.WriteString(": ")
		} else {
			text.WriteString("; ")
		}
		if !strings.HasPrefix(field.Message, field.Field+" ") {
			text.WriteString(field.Field + " ")
		}
		text.WriteString(field.Message)
	}
	if e.RequestID != "" {
		text.WriteString(" (request " + e.RequestID + ")")
	}
	return text.String()
}

// Is reports whether target is the sentinel for this error, or context.DeadlineExceeded or context.Canceled where that is why.
func (e *Error) Is(target error) bool {
	switch target {
	case context.DeadlineExceeded:
		return e.Code == codes.DeadlineExceeded
	case context.Canceled:
		return e.Code == codes.Canceled
	default:
		return e.kind != nil && target == e.kind
	}
}

// newError reads a gRPC error.
func newError(err error) error {
	received := status.Convert(err)
	e := &Error{Code: received.Code(), Message: received.Message(), kind: byCode[received.Code()]}
	for _, detail := range received.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			e.Reason = detail.GetReason()
			if kind := byReason[e.Reason]; kind != nil {
				e.kind = kind
			}
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				e.Fields = append(e.Fields, FieldError{violation.GetField(), violation.GetDescription()})
			}
		case *errdetails.RequestInfo:
			e.RequestID = detail.GetRequestId()
		}
	}
	return e
}

package k1s0

import (
	"maps"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
)

// Code says what went wrong in a way that programs can decide by. It is the error's code in REST bodies and the reason of
// google.rpc.ErrorInfo.
type Code string

// The codes.
const (
	CodeValidation       Code = "SYS_RATELIMIT_VALIDATION_ERROR"       // fields are at fault
	CodeCheck            Code = "SYS_RATELIMIT_ERROR"                  // a check that cannot be made
	CodeUnauthenticated  Code = "SYS_RATELIMIT_UNAUTHENTICATED"        // nobody knows who asks
	CodeForbidden        Code = "SYS_RATELIMIT_FORBIDDEN"              // the role does not allow it
	CodeRuleNotFound     Code = "SYS_RATELIMIT_RULE_NOT_FOUND"         // no rule has this ID
	CodeRuleExists       Code = "SYS_RATELIMIT_RULE_EXISTS"            // a rule has the same domain and match
	CodeReadOnly         Code = "SYS_RATELIMIT_RULE_READ_ONLY"         // a file holds the rule
	CodeStale            Code = "SYS_RATELIMIT_RULE_STALE"             // the rule is at another version
	CodeConflict         Code = "SYS_RATELIMIT_CONFLICT"               // the request ID was used for something else
	CodeNotFound         Code = "SYS_RATELIMIT_NOT_FOUND"              // no such path
	CodeMethodNotAllowed Code = "SYS_RATELIMIT_METHOD_NOT_ALLOWED"     // the path has other methods
	CodeBodyTooLarge     Code = "SYS_RATELIMIT_BODY_TOO_LARGE"         // more than MaxBody
	CodeMediaType        Code = "SYS_RATELIMIT_UNSUPPORTED_MEDIA_TYPE" // the body is not called JSON
	CodeUnavailable      Code = "SYS_RATELIMIT_UNAVAILABLE"            // the database, the counters or the issuer do not answer
	CodeInternal         Code = "SYS_RATELIMIT_INTERNAL_ERROR"         // a fault of this server
)

// statuses is the one place where a code becomes a status of HTTP and of gRPC.
var statuses = map[Code]struct {
	http int
	grpc codes.Code
}{
	CodeValidation:       {http.StatusBadRequest, codes.InvalidArgument},
	CodeCheck:            {http.StatusBadRequest, codes.FailedPrecondition},
	CodeUnauthenticated:  {http.StatusUnauthorized, codes.Unauthenticated},
	CodeForbidden:        {http.StatusForbidden, codes.PermissionDenied},
	CodeRuleNotFound:     {http.StatusNotFound, codes.NotFound},
	CodeRuleExists:       {http.StatusConflict, codes.AlreadyExists},
	CodeReadOnly:         {http.StatusConflict, codes.FailedPrecondition},
	CodeStale:            {http.StatusPreconditionFailed, codes.Aborted},
	CodeConflict:         {http.StatusConflict, codes.AlreadyExists},
	CodeNotFound:         {http.StatusNotFound, codes.Unimplemented},
	CodeMethodNotAllowed: {http.StatusMethodNotAllowed, codes.Unimplemented},
	CodeBodyTooLarge:     {http.StatusRequestEntityTooLarge, codes.ResourceExhausted},
	CodeMediaType:        {http.StatusUnsupportedMediaType, codes.InvalidArgument},
	CodeUnavailable:      {http.StatusServiceUnavailable, codes.Unavailable},
	CodeInternal:         {http.StatusInternalServerError, codes.Internal},
}

// Codes returns every code, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(statuses)) }

// HTTP is the code's HTTP status.
func (c Code) HTTP() int { return statuses[c].http }

// GRPC is the code's gRPC status code.
func (c Code) GRPC() codes.Code { return statuses[c].grpc }

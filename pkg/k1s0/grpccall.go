package k1s0

import (
	"context"
	"log/slog"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/weirhq/weir/pkg/auth"
)

// errorDomain is the domain of every google.rpc.ErrorInfo.
const errorDomain = "weir"

type callerKey struct{}

func withCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

func callerOf(ctx context.Context) Caller {
	caller, _ := ctx.Value(callerKey{}).(Caller)
	return caller
}

// enter names a call and finds out whose it is, and whether that one may. The caller is known as far as it got.
func (s *Service) enter(ctx context.Context, role auth.Role) (Caller, error) {
	name := strings.ToLower(requestIDHeader)
	caller := Caller{RequestID: requestID(metadata.ValueFromIncomingContext(ctx, name))}
	_ = grpc.SetHeader(ctx, metadata.Pairs(name, caller.RequestID)) // fails only where there is no connection
	if role == auth.NoRole {
		return caller, nil
	}
	bearer, err := auth.FromContext(ctx)
	if err != nil {
		return caller, err
	}
	who, err := s.Auth.Authorize(ctx, bearer, role)
	caller.Subject = who.Subject
	return caller, err
}

// failed turns an error into a status with google.rpc's details.
func (s *Service) failed(ctx context.Context, err error, caller Caller, method string) error {
	failure := asError(err)
	s.log(ctx, failure, caller, slog.String("method", method))
	details := []protoadapt.MessageV1{
		protoadapt.MessageV1Of(&errdetails.ErrorInfo{Reason: string(failure.Code), Domain: errorDomain}),
		protoadapt.MessageV1Of(&errdetails.RequestInfo{RequestId: caller.RequestID}),
	}
	message := failure.Message
	if len(failure.Fields) > 0 {
		bad := &errdetails.BadRequest{}
		for i := range failure.Fields {
			field := &failure.Fields[i]
			name, description := grpcField(field, method)
			bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: valid(name), Description: valid(description), Reason: string(failure.Code),
			})
		}
		if len(failure.Fields) == 1 {
			message = bad.GetFieldViolations()[0].GetDescription()
		}
		details = append(details, protoadapt.MessageV1Of(bad))
	}
	plain := status.New(failure.Code.GRPC(), valid(message))
	detailed, err := plain.WithDetails(details...)
	if err != nil {
		return plain.Err() // better without details than not at all
	}
	return detailed.Err()
}

// grpcField is what a field is called in gRPC's messages, and what is wrong with it there. Rules have as key what REST has
// as scope and identifier_pattern.
func grpcField(field *Field, method string) (name, description string) {
	inRule := method == "CreateRule" || method == "UpdateRule"
	switch {
	case inRule && field.Name == "scope":
		return "key", "key's scope " + field.Problem
	case inRule && field.Name == "identifier_pattern":
		return "key", "key's identifier pattern " + field.Problem
	case field.Name == "window", field.Name == "window_seconds":
		name = "window_secs"
	default:
		name = field.Name
	}
	return name, field.message(name)
}

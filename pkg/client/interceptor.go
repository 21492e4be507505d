package client

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/pkg/respond"
)

// errorDomain is google.rpc.ErrorInfo's domain of the errors that a Guard makes.
const errorDomain = "ratelimit.weir"

// UnaryServerInterceptor limits unary calls. A call over the limit ends with RESOURCE_EXHAUSTED, whose details are
// google.rpc.ErrorInfo, RetryInfo and QuotaFailure; one that cannot be checked, where FailClosed is set, with UNAVAILABLE and
// RetryInfo. The header fields go into the response's header metadata.
func (g *Guard) UnaryServerInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if err := g.intercept(ctx, info.FullMethod, func(md metadata.MD) error { return grpc.SetHeader(ctx, md) }); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
}

// StreamServerInterceptor limits streams, as UnaryServerInterceptor does: each one is charged once, when it begins.
func (g *Guard) StreamServerInterceptor() grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		if err := g.intercept(stream.Context(), info.FullMethod, stream.SetHeader); err != nil {
			return err
		}
		return handler(server, stream)
	}
}

func (g *Guard) intercept(ctx context.Context, method string, setHeader func(metadata.MD) error) error {
	call := grpcCall(ctx, method)
	decision, verdict := g.check(&call)
	switch verdict {
	case pass:
		return nil
	case gone:
		return status.FromContextError(ctx.Err()).Err()
	case allowed, denied:
	}
	shown := decision.shown()
	var space [8]respond.Header
	md := metadata.MD{}
	for _, h := range g.options.Headers.Append(space[:0], &shown, g.options.Now()) {
		md.Set(strings.ToLower(h.Name), h.Value)
	}
	if len(md) > 0 {
		_ = setHeader(md) // it fails only if the header was sent before, by an interceptor around this one
	}
	if verdict == denied {
		return g.refusal(&shown)
	}
	return nil
}

// refusal is a denial as a gRPC status.
func (g *Guard) refusal(shown *respond.Decision) error {
	message := g.options.Message
	if message == "" {
		message = respond.DefaultMessage
	}
	code, reason := codes.ResourceExhausted, "RATE_LIMIT_EXCEEDED"
	switch shown.Cause {
	case respond.ReducedCapacity:
		code, reason, message = codes.Unavailable, "RATE_LIMIT_UNAVAILABLE", "the rate limit could not be checked"
	case respond.Refused:
		reason = "RATE_LIMIT_REFUSED" // without RetryInfo: waiting does not change it
	case respond.LimitReached:
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: errorDomain}}
	if seconds := shown.RetryAfter(); seconds > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryDelay(shown, seconds))})
	}
	var violations []*errdetails.QuotaFailure_Violation
	for i := range shown.Limits {
		if l := &shown.Limits[i]; l.Denied && len(violations) < respond.MaxPolicies {
			name := respond.EscapeName(l.Name)
			violations = append(violations, &errdetails.QuotaFailure_Violation{
				Subject: "limit:" + name, Description: describeLimit(l), QuotaId: name, QuotaValue: l.Count,
			})
		}
	}
	if len(violations) > 0 {
		details = append(details, &errdetails.QuotaFailure{Violations: violations})
	}
	refused := status.New(code, message)
	if detailed, err := refused.WithDetails(details...); err == nil {
		refused = detailed
	}
	return refused.Err()
}

// retryDelay is the exact time for which Retry-After has whole seconds.
func retryDelay(shown *respond.Decision, seconds int64) time.Duration {
	var exact time.Duration
	for i := range shown.Limits {
		if l := &shown.Limits[i]; l.Denied {
			exact = max(exact, l.RetryAfter)
		}
	}
	if exact > 0 {
		return exact
	}
	return time.Duration(seconds) * time.Second
}

func describeLimit(l *respond.Limit) string {
	return strconv.FormatInt(l.Count, 10) + " per " + l.Window.String()
}

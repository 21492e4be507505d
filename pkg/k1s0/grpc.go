package k1s0

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/ratelimit"
	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

// ServiceName is the gRPC service's full name.
const ServiceName = "k1s0.system.ratelimit.v1.RateLimitService"

// roles are what the calls need. One that is not listed needs the highest.
var roles = map[string]auth.Role{
	"CheckRateLimit": auth.NoRole,
	"GetRule":        auth.Auditor,
	"ListRules":      auth.Auditor,
	"GetUsage":       auth.Auditor,
	"CreateRule":     auth.Operator,
	"UpdateRule":     auth.Operator,
	"ResetLimit":     auth.Operator,
	"DeleteRule":     auth.Admin,
}

// Register makes a gRPC server answer the service's calls. Roles are checked here and not by an interceptor, which a server
// could forget.
func Register(server grpc.ServiceRegistrar, s *Service) {
	description := pb.RateLimitService_ServiceDesc
	description.Methods = make([]grpc.MethodDesc, len(pb.RateLimitService_ServiceDesc.Methods))
	for i, method := range pb.RateLimitService_ServiceDesc.Methods {
		role, known := roles[method.MethodName]
		if !known {
			role = auth.Admin
		}
		description.Methods[i] = grpc.MethodDesc{MethodName: method.MethodName, Handler: s.guard(method, role)}
	}
	server.RegisterService(&description, grpcServer{service: s})
}

// guard makes a handler that finds out who calls before it lets the call through to a method, and turns errors into statuses.
func (s *Service) guard(method grpc.MethodDesc, role auth.Role) func(any, context.Context, func(any) error, grpc.UnaryServerInterceptor) (any, error) {
	return func(server any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		inner := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			caller, err := s.enter(ctx, role)
			var reply any
			if err == nil {
				reply, err = handler(withCaller(ctx, caller), request)
			}
			if err != nil {
				return nil, s.failed(ctx, err, caller, method.MethodName)
			}
			return reply, nil
		}
		chained := inner
		if outer != nil {
			chained = func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				return outer(ctx, request, info, func(ctx context.Context, request any) (any, error) {
					return inner(ctx, request, info, handler)
				})
			}
		}
		return method.Handler(server, ctx, decode, chained)
	}
}

// grpcServer translates between messages and the service.
type grpcServer struct {
	pb.UnimplementedRateLimitServiceServer
	service *Service
}

func (g grpcServer) CheckRateLimit(ctx context.Context, request *pb.CheckRateLimitRequest) (*pb.CheckRateLimitResponse, error) {
	check := Check{
		RuleID: request.GetRuleId(), Subject: request.GetSubject(), Scope: request.GetScope(), Identifier: request.GetIdentifier(),
		Domain: request.GetDomain(), Cost: 1, RequestID: request.GetRequestId(), Peek: request.GetPeek(),
		RulesOnly: request.GetRulesOnly(), Window: windowOf(request.GetWindowSecs()),
	}
	if request.Cost != nil {
		check.Cost = request.GetCost()
	}
	var f faults
	for i, sent := range request.GetDescriptors() {
		if i > maxDescriptors {
			break // that is one too many already
		}
		descriptor := ratelimit.Descriptor{Cost: sent.GetCost(), HasCost: sent.Cost != nil}
		if limit := sent.GetLimit(); limit != nil {
			descriptor.Limit = f.override(index("descriptors", i)+".limit", sentLimit{
				name: limit.GetName(), algorithm: limit.GetAlgorithm(), kind: limit.GetKind(), calendar: limit.GetCalendar(),
				count: limit.GetLimit(), burst: limit.GetBurst(), windowMS: limit.GetWindowMs(),
			})
		}
		for _, entry := range sent.GetEntries() {
			descriptor.Entries = append(descriptor.Entries, ratelimit.Entry{Key: entry.GetKey(), Value: entry.GetValue()})
		}
		check.Descriptors = append(check.Descriptors, descriptor)
	}
	if len(f) > 0 {
		return nil, join(f, g.service.validateCheck(&check))
	}
	decision, err := g.service.Check(ctx, check)
	if err != nil {
		return nil, err
	}
	return &pb.CheckRateLimitResponse{
		Allowed: decision.Allowed, Remaining: decision.Remaining, ResetAt: decision.ResetAt, Reason: decision.Reason,
		Limit: decision.Limit, RetryAfterMs: milliseconds(decision.RetryAfter), RuleId: decision.RuleID,
		Results: resultMessages(decision.Results), Degraded: decision.Degraded, Unlimited: decision.Unlimited,
	}, nil
}

// windowOf is a window in seconds; one too long for a Duration becomes one that validation refuses.
func windowOf(seconds int64) time.Duration {
	const longest = int64(2 * ratelimit.MaxWindow / time.Second)
	return time.Duration(min(max(seconds, -1), longest)) * time.Second
}

func (g grpcServer) CreateRule(ctx context.Context, request *pb.CreateRuleRequest) (*pb.CreateRuleResponse, error) {
	rule, err := g.service.Create(ctx, callerOf(ctx), ruleInput(request))
	if err != nil {
		return nil, err
	}
	return &pb.CreateRuleResponse{Rule: ruleMessage(rule)}, nil
}

func (g grpcServer) UpdateRule(ctx context.Context, request *pb.UpdateRuleRequest) (*pb.UpdateRuleResponse, error) {
	rule, err := g.service.Update(ctx, callerOf(ctx), request.GetRuleId(), ruleInput(request), request.GetVersion())
	if err != nil {
		return nil, err
	}
	return &pb.UpdateRuleResponse{Rule: ruleMessage(rule)}, nil
}

// writtenRule is what CreateRuleRequest and UpdateRuleRequest have in common.
type writtenRule interface {
	GetName() string
	GetKey() string
	GetLimit() int64
	GetWindowSecs() int64
	GetAlgorithm() string
	GetBurst() int64
	GetEnabled() bool
}

func ruleInput(request writtenRule) RuleInput {
	scope, pattern, _ := strings.Cut(request.GetKey(), ":")
	enabled := true
	switch sent := request.(type) {
	case *pb.CreateRuleRequest:
		enabled = sent.Enabled == nil || sent.GetEnabled()
	case *pb.UpdateRuleRequest:
		enabled = sent.Enabled == nil || sent.GetEnabled()
	}
	return RuleInput{
		Name: request.GetName(), Scope: scope, Pattern: pattern, Limit: request.GetLimit(), WindowSeconds: request.GetWindowSecs(),
		Algorithm: request.GetAlgorithm(), Burst: request.GetBurst(), Enabled: enabled,
	}
}

func (g grpcServer) GetRule(ctx context.Context, request *pb.GetRuleRequest) (*pb.GetRuleResponse, error) {
	rule, err := g.service.Get(ctx, request.GetRuleId())
	if err != nil {
		return nil, err
	}
	return &pb.GetRuleResponse{Rule: ruleMessage(rule)}, nil
}

func (g grpcServer) DeleteRule(ctx context.Context, request *pb.DeleteRuleRequest) (*pb.DeleteRuleResponse, error) {
	if err := g.service.Delete(ctx, callerOf(ctx), request.GetRuleId(), request.GetVersion()); err != nil {
		return nil, err
	}
	return &pb.DeleteRuleResponse{}, nil
}

func (g grpcServer) ListRules(ctx context.Context, request *pb.ListRulesRequest) (*pb.ListRulesResponse, error) {
	filter := Filter{
		Scope: request.GetScope(), EnabledOnly: request.GetEnabledOnly(), Page: request.GetPage(), PageSize: request.GetPageSize(),
	}
	if filter.Page == 0 {
		filter.Page = 1
	}
	if filter.PageSize == 0 {
		filter.PageSize = DefaultPageSize
	}
	page, err := g.service.List(ctx, filter)
	if err != nil {
		return nil, err
	}
	reply := &pb.ListRulesResponse{
		Rules:      make([]*pb.RateLimitRule, len(page.Rules)),
		Pagination: &pb.Pagination{TotalCount: page.Total, Page: page.Number, PageSize: page.Size, HasNext: page.HasNext},
	}
	for i := range page.Rules {
		reply.Rules[i] = ruleMessage(&page.Rules[i])
	}
	return reply, nil
}

func (g grpcServer) GetUsage(ctx context.Context, request *pb.GetUsageRequest) (*pb.GetUsageResponse, error) {
	usage, err := g.service.Usage(ctx, request.GetRuleId(), request.GetSubject())
	if err != nil {
		return nil, err
	}
	rule := ruleMessage(usage.Rule)
	reply := &pb.GetUsageResponse{
		RuleId: rule.GetId(), RuleName: rule.GetName(), Limit: rule.GetLimit(), WindowSecs: rule.GetWindowSecs(),
		Algorithm: rule.GetAlgorithm(), Enabled: rule.GetEnabled(),
	}
	if usage.Counted {
		reply.Used, reply.Remaining, reply.ResetAt = &usage.Used, &usage.Remaining, &usage.ResetAt
		reply.Results = resultMessages(usage.Results)
	}
	return reply, nil
}

func (g grpcServer) ResetLimit(ctx context.Context, request *pb.ResetLimitRequest) (*pb.ResetLimitResponse, error) {
	who, err := g.service.Reset(ctx, callerOf(ctx), request.GetScope(), request.GetIdentifier(), windowOf(request.GetWindowSecs()))
	if err != nil {
		return nil, err
	}
	return &pb.ResetLimitResponse{Success: true, Message: resetMessage(who)}, nil
}

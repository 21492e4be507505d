package k1s0

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/weirhq/weir/proto/k1s0/system/ratelimit/v1"
)

func resultMessages(results []Result) []*pb.LimitResult {
	messages := make([]*pb.LimitResult, len(results))
	for i := range results {
		result := &results[i]
		messages[i] = &pb.LimitResult{
			Name: valid(result.Name), RuleId: result.RuleID, Algorithm: result.Limit.Algorithm.String(), Limit: result.Limit.Count,
			WindowMs: milliseconds(result.Limit.Window), Burst: result.Limit.Burst, Kind: result.Limit.Kind.String(),
			Allowed: result.Allowed, Remaining: result.Remaining, ResetAt: result.ResetAt, RetryAfterMs: milliseconds(result.RetryAfter),
		}
	}
	return messages
}

func ruleMessage(rule *Rule) *pb.RateLimitRule {
	first := rule.limit()
	message := &pb.RateLimitRule{
		Id: rule.ID, Name: rule.Name, Key: rule.key(), Limit: first.Count, WindowSecs: seconds(first.Window), Enabled: rule.Enabled,
		CreatedAt: shownTimestamp(rule.CreatedAt), UpdatedAt: shownTimestamp(rule.UpdatedAt),
		Scope: rule.Scope, IdentifierPattern: rule.Pattern, Source: rule.Source, Burst: first.Burst, Version: rule.Version,
		Domain: rule.Domain, Path: rule.Path, Action: actionName(rule.Action), Conflict: rule.Conflict,
	}
	if len(rule.Limits) > 0 {
		message.Algorithm = first.Algorithm.String()
	}
	for i := range rule.Limits {
		limit := &rule.Limits[i]
		message.Limits = append(message.Limits, &pb.RuleLimit{
			Name: limit.Name, Algorithm: limit.Algorithm.String(), Limit: limit.Count, WindowMs: milliseconds(limit.Window),
			Burst: limit.Burst, Kind: limit.Kind.String(), Calendar: calendarName(limit),
		})
	}
	return message
}

func shownTimestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// valid makes text UTF-8, without which a message cannot be sent.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

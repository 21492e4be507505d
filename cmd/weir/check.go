package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type checkOptions struct {
	output    string
	cost      int64
	transport transportOptions
}

func newCheck() *cobra.Command {
	var options checkOptions
	command := &cobra.Command{
		Use:   "check ADDRESS DOMAIN KEY=VALUE[,KEY=VALUE...] [KEY=VALUE...]",
		Short: "Ask a running server, as Envoy would, and print its decision",
		Long: `check asks a RateLimitService v3 whether a request would pass, and charges it. Each argument after the
domain is one descriptor; commas separate its entries; a backslash takes the next character as it is.

ADDRESS is host:port or unix:PATH. Exit status: 0 allowed, 1 denied, 2 no answer.`,
		Example: `  weir check localhost:50051 edge user=ann
  weir check localhost:50051 edge plan=free,user=ann remote_address=10.1.2.3
  weir check --cost 0 localhost:50051 edge user=ann         # look without charging
  weir check --tls --ca ca.crt limits.example:443 edge user=ann -o json`,
		Args: cobra.MinimumNArgs(3),
		RunE: func(command *cobra.Command, args []string) error {
			return check(command.Context(), command.OutOrStdout(), args[0], args[1], args[2:], options)
		},
	}
	flags := command.Flags()
	outputFlag(command, &options.output)
	flags.Int64Var(&options.cost, "cost", 1, "what to charge: 0 looks, a negative cost gives back")
	options.transport.flags(command, "ADDRESS")
	return command
}

func check(ctx context.Context, out io.Writer, address, domain string, descriptors []string, options checkOptions) error {
	if options.output != "text" && options.output != "json" {
		return unknownOutput(options.output)
	}
	request, err := checkRequest(domain, descriptors, options.cost)
	if err != nil {
		return err
	}
	settings, err := options.transport.config()
	if err != nil {
		return err
	}
	transport := insecure.NewCredentials()
	if settings != nil {
		transport = credentials.NewTLS(settings)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	if err != nil {
		return fmt.Errorf("address %q: %w: write host:port or unix:PATH", address, err)
	}
	defer func() { _ = connection.Close() }()

	ctx, cancel := context.WithTimeout(ctx, options.transport.timeout)
	defer cancel()
	reply, err := rlsv3.NewRateLimitServiceClient(connection).ShouldRateLimit(ctx, request)
	if err != nil {
		code := status.Convert(err)
		return fmt.Errorf("%s did not answer: %s: %s", address, code.Code(), code.Message())
	}
	if err := printDecision(out, options.output, descriptors, reply); err != nil {
		return err
	}
	if reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		return errNo
	}
	return nil
}

func checkRequest(domain string, descriptors []string, cost int64) (*rlsv3.RateLimitRequest, error) {
	request := &rlsv3.RateLimitRequest{Domain: domain}
	for _, text := range descriptors {
		entries, err := parseDescriptor(text)
		if err != nil {
			return nil, err
		}
		descriptor := &commonv3.RateLimitDescriptor{}
		for _, entry := range entries {
			descriptor.Entries = append(descriptor.Entries, &commonv3.RateLimitDescriptor_Entry{
				Key: strings.ToValidUTF8(entry.Key, "\uFFFD"), Value: strings.ToValidUTF8(entry.Value, "\uFFFD"),
			})
		}
		switch {
		case cost < 0:
			descriptor.IsNegativeHits = true
			descriptor.HitsAddend = wrapperspb.UInt64(uint64(-cost))
		case cost != 1:
			descriptor.HitsAddend = wrapperspb.UInt64(uint64(cost))
		}
		request.Descriptors = append(request.Descriptors, descriptor)
	}
	return request, nil
}

// decision is what check prints: Envoy's reply in weir's words.
type decision struct {
	Allowed  bool     `json:"allowed"`
	Statuses []answer `json:"descriptors"`
}

type answer struct {
	Descriptor string `json:"descriptor"`
	Allowed    bool   `json:"allowed"`
	Rule       string `json:"rule,omitempty"`
	// Limit is "REQUESTS per WINDOW", empty where no limit applies.
	Limit        string `json:"limit,omitempty"`
	Remaining    uint32 `json:"remaining"`
	ResetSeconds int64  `json:"reset_seconds"`
}

func printDecision(out io.Writer, output string, descriptors []string, reply *rlsv3.RateLimitResponse) error {
	result := decision{Allowed: reply.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT, Statuses: []answer{}}
	for i, status := range reply.GetStatuses() {
		row := answer{
			Allowed:      status.GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT,
			Remaining:    status.GetLimitRemaining(),
			ResetSeconds: int64(status.GetDurationUntilReset().AsDuration().Seconds()),
		}
		if i < len(descriptors) {
			row.Descriptor = descriptors[i]
		}
		if limit := status.GetCurrentLimit(); limit != nil {
			row.Rule = limit.GetName()
			row.Limit = fmt.Sprintf("%d per %s", limit.GetRequestsPerUnit(), window(limit))
		}
		result.Statuses = append(result.Statuses, row)
	}
	if output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(result)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, word(result.Allowed))
	for _, row := range result.Statuses {
		if row.Limit == "" {
			fmt.Fprintf(table, "  %s\t%s\tno limit\n", row.Descriptor, word(row.Allowed))
			continue
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%d left\treset in %ds\n",
			row.Descriptor, word(row.Allowed), row.Rule, row.Limit, row.Remaining, row.ResetSeconds)
	}
	return table.Flush()
}

func word(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

func window(limit *rlsv3.RateLimitResponse_RateLimit) string {
	unit := strings.ToLower(limit.GetUnit().String())
	if n := limit.GetUnitMultiplier().GetValue(); n > 1 {
		return fmt.Sprintf("%d %ss", n, unit)
	}
	return unit
}

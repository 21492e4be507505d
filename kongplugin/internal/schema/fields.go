package schema

import "github.com/weirhq/weir/pkg/ratelimit"

// LimitBy lists the ways to tell clients apart, and Sources where a descriptor's entries come from.
var (
	LimitBy = []string{"consumer", "credential", "ip", "service", "route", "header", "path", "method", "query_arg", "jwt_claim"}
	Sources = append(append([]string{}, LimitBy...), "value")
)

// Periods are the limits of Kong's own rate-limiting, from the shortest.
var Periods = []string{"second", "minute", "hour", "day", "month", "year"}

// maxInteger is the largest integer that Kong's Lua holds exactly.
const maxInteger = 1<<53 - 1

const maxWindowSeconds = 10 * 365 * 24 * 3600

// Fields are the settings, in the order in which people meet them.
func Fields() []Field {
	fields := []Field{
		{
			Name: "mode", Type: String, Default: "grpc", OneOf: []string{"grpc", "embedded"},
			Doc: "Who counts: 'grpc' asks a weir server, 'embedded' runs weir's engine in the plugin's own process.",
		},
		grpcFields(),
		{Name: "rules_path", Type: String, Doc: "File or folder of YAML rules for mode embedded (and for fallback local in mode grpc); read again when it changes."},
		redisFields(),
		{
			Name: "key_prefix", Type: String, Default: "ratelimit",
			Doc: "First part of every counter's key in Redis, in mode embedded. Whoever shall share counters needs the same.",
		},
		{
			Name: "limit_by", Type: String, Default: "consumer", OneOf: LimitBy,
			Doc: "What tells clients apart. Each consumer, address, header value and so on has limits of its own.",
		},
		{Name: "header_name", Type: String, LenMax: 256, Doc: "Request header that limit_by 'header' counts by."},
		{Name: "path", Type: String, LenMax: 4096, Doc: "Path that limit_by 'path' counts: requests for other paths have no identity (see on_missing). Unset: each path by itself."},
		{Name: "query_arg", Type: String, LenMax: 256, Doc: "Query argument that limit_by 'query_arg' counts by; the first of several."},
		{
			Name: "claim_name", Type: String, LenMax: 256,
			Doc: "Claim of the bearer token that limit_by 'jwt_claim' counts by; dots lead into objects. The token is not verified here: let an authentication plugin do it first.",
		},
		{
			Name: "compound_identifier", Type: Array, LenMin: 1, LenMax: len(LimitBy),
			Elements: &Field{Type: String, OneOf: LimitBy},
			Doc:      "Several ways at once, in place of limit_by: each combination of their values has limits of its own.",
		},
	}
	for _, period := range Periods {
		fields = append(fields, Field{
			Name: period, Type: Integer, Min: 1, Max: ratelimit.MaxCount,
			Doc: "Requests that each client may make per " + period + ".",
		})
	}
	return append(fields,
		Field{
			Name: "limit", Type: Array, LenMin: 1, LenMax: 16,
			Elements: &Field{Type: Integer, Min: 1, Max: ratelimit.MaxCount},
			Doc:      "Requests that each client may make per window; one number for each of window_size.",
		},
		Field{
			Name: "window_size", Type: Array, LenMin: 1, LenMax: 16,
			Elements: &Field{Type: Integer, Min: 1, Max: maxWindowSeconds},
			Doc:      "Windows in seconds; one for each of limit. All of them must allow a request.",
		},
		Field{
			Name: "window_type", Type: String, Default: "fixed", OneOf: []string{"fixed", "sliding", "token_bucket"},
			Doc: "How windows count: from one full minute to the next as Kong's own plugin does, over the last minute, or with a bucket that refills evenly.",
		},
		Field{
			Name: "namespace", Type: String, LenMax: 128,
			Doc: "Plugins with the same namespace share counters. Unset: each route or service that has a plugin has counters of its own.",
		},
		Field{
			Name: "domain", Type: String, Default: "kong", LenMax: 128,
			Doc: "Domain of weir's rules that descriptors are matched in, and the part of the keys in which simple limits count.",
		},
		descriptorFields(),
		Field{
			Name: "cost", Type: Integer, Default: 1, Min: 0, Max: ratelimit.MaxCost,
			Doc: "How much of the limit a request takes. 0 looks without taking.",
		},
		Field{
			Name: "cost_header", Type: String, LenMax: 256,
			Doc: "Request header that holds the cost, at least 1; cost applies where it is absent or no number. Clients choose it, so let something in front set it.",
		},
		Field{
			Name: "on_missing", Type: String, Default: "ip", OneOf: []string{"ip", "skip", "shared"},
			Doc: "What a request without the identity counts as: its client address, nothing (it is not limited), or one of a group of all such requests.",
		},
		Field{
			Name: "request_id", Type: Boolean, Default: false,
			Doc: "Send Kong's request id along, so that a request that Kong runs again is charged once. Costs one more call to Kong for each request.",
		},
		Field{
			Name: "fault_tolerant", Type: Boolean, Default: true,
			Doc: "What happens to a request that nobody can decide: true lets it pass, false answers fault_code.",
		},
		Field{Name: "fault_code", Type: Integer, Default: 500, Min: 400, Max: 599, Doc: "Status of a request that nobody can decide, if fault_tolerant is off."},
		Field{
			Name: "fallback", Type: String, Default: "none", OneOf: []string{"none", "local"},
			Doc: "Who decides while weir or Redis is away: nobody (see fault_tolerant), or counters in this process.",
		},
		Field{
			Name: "fallback_fraction", Type: Number, Default: 1, Min: 0, Max: 1,
			Doc: "Part of each limit that fallback 'local' allows; 1 divided by the number of Kong nodes keeps their sum within the limit.",
		},
		Field{Name: "hide_client_headers", Type: Boolean, Default: false, Doc: "Tell clients nothing about their limits, Retry-After included."},
		Field{
			Name: "header_style", Type: String, Default: "kong", OneOf: []string{"kong", "ietf", "envoy", "none"},
			Doc: "Headers that tell clients about their limits: as Kong's own plugin, as the IETF's draft, or as Envoy. 'none' leaves Retry-After on denials.",
		},
		Field{Name: "error_code", Type: Integer, Default: 429, Min: 400, Max: 599, Doc: "Status of a request that is over a limit."},
		Field{Name: "quota_code", Type: Integer, Default: 402, Min: 400, Max: 599, Doc: "Status of a request that is over a limit which weir's rules call a quota."},
		Field{Name: "error_message", Type: String, Default: "API rate limit exceeded", LenMax: 1024, Doc: "Message in the body of such an answer."},
		Field{
			Name: "error_format", Type: String, Default: "negotiate", OneOf: []string{"negotiate", "json", "problem", "html", "text", "grpc"},
			Doc: "Form of the body. 'negotiate' asks Kong what the client accepts and whether it speaks gRPC; a fixed form saves these two calls to Kong on each denial.",
		},
		Field{
			Name: "error_body", Type: String, LenMax: 65536,
			Doc: "Go template of the body, in place of the forms: {{.Message}}, {{.Status}}, {{.RequestID}}, {{.RetryAfter}}, {{.Name}}, {{.Limit}}, {{.Window}}, {{.Reset}}.",
		},
		Field{Name: "error_content_type", Type: String, Default: "application/json; charset=utf-8", LenMax: 256, Doc: "Content-Type of error_body's result."},
		Field{Name: "dry_run", Type: Boolean, Default: false, Doc: "Count and tell, but let every request pass."},
	)
}

func grpcFields() Field {
	return Field{
		Name: "grpc", Type: Record, Required: true, Doc: "The weir server that mode grpc asks.",
		Fields: []Field{
			{Name: "host", Type: String, Default: "127.0.0.1", LenMax: 253, Doc: "Host name or address of the server."},
			{Name: "port", Type: Integer, Default: 50051, Min: 1, Max: 65535, Doc: "Port of the server's gRPC listener."},
			{Name: "socket", Type: String, LenMax: 107, Doc: "Path of the server's unix socket, in place of host and port."},
			{Name: "timeout", Type: Integer, Default: 250, Min: 1, Max: 60000, Doc: "Deadline of a decision in milliseconds. Keep it above the server's own deadline for Redis (100 ms)."},
			{Name: "ssl", Type: Boolean, Default: false, Doc: "Use TLS on the connection to the server."},
			{Name: "ssl_verify", Type: Boolean, Default: true, Doc: "Check the server's certificate."},
			{Name: "server_name", Type: String, LenMax: 253, Doc: "Name that the server's certificate must have. Unset: the host."},
			{Name: "ca_file", Type: String, Doc: "PEM file of the CAs that the server's certificate must come from. Unset: the system's."},
			{Name: "cert_file", Type: String, Doc: "PEM file of a client certificate, for servers that ask for one."},
			{Name: "key_file", Type: String, Doc: "PEM file of the client certificate's key."},
		},
	}
}

func redisFields() Field {
	node := func(host string) *Field {
		return &Field{Type: Record, Fields: []Field{
			{Name: host, Type: String, Default: "127.0.0.1", LenMax: 253, Doc: "Host name or address of the node."},
			{Name: "port", Type: Integer, Default: 6379, Min: 1, Max: 65535, Doc: "Port of the node."},
		}}
	}
	return Field{
		Name: "redis", Type: Record, Required: true,
		Doc: "The Redis that holds the counters in mode embedded. Without a host, a socket or nodes they are in the memory of this process.",
		Fields: []Field{
			{Name: "host", Type: String, LenMax: 253, Doc: "Host name or address of the server."},
			{Name: "port", Type: Integer, Default: 6379, Min: 1, Max: 65535, Doc: "Port of the Redis server."},
			{Name: "socket", Type: String, LenMax: 107, Doc: "Path of the server's unix socket, in place of host and port."},
			{Name: "username", Type: String, Secret: true, Doc: "User to log in as. Unset: Redis' default user."},
			{Name: "password", Type: String, Secret: true, Doc: "Password of the user."},
			{Name: "database", Type: Integer, Default: 0, Min: 0, Max: 1048576, Doc: "Number of the database."},
			{Name: "timeout", Type: Integer, Default: 100, Min: 1, Max: 60000, Doc: "Deadline of a call in milliseconds."},
			{Name: "ssl", Type: Boolean, Default: false, Doc: "Use TLS on the connections to Redis."},
			{Name: "ssl_verify", Type: Boolean, Default: true, Doc: "Check the server's certificate."},
			{Name: "server_name", Type: String, LenMax: 253, Doc: "Name that the server's certificate must have. Unset: the host."},
			{Name: "ca_file", Type: String, Doc: "PEM file of the CAs that the server's certificate must come from. Unset: the system's."},
			{Name: "keepalive_pool_size", Type: Integer, Default: 20, Min: 1, Max: 10000, Doc: "Most connections to each server."},
			{Name: "sentinel_master", Type: String, Doc: "Name under which the Sentinels know the server."},
			{Name: "sentinel_nodes", Type: Array, LenMin: 1, LenMax: 32, Elements: node("host"), Doc: "The Sentinels that watch the server, in place of a host."},
			{Name: "sentinel_username", Type: String, Secret: true, Doc: "User to log in as at the Sentinels."},
			{Name: "sentinel_password", Type: String, Secret: true, Doc: "Password at the Sentinels."},
			{Name: "cluster_nodes", Type: Array, LenMin: 1, LenMax: 64, Elements: node("ip"), Doc: "Some nodes of a Redis Cluster, in place of a host; the others are found through them."},
		},
	}
}

func descriptorFields() Field {
	return Field{
		Name: "descriptors", Type: Array, LenMin: 1, LenMax: 32,
		Doc: "What weir's rules are asked about, in place of limits here: lists of entries, from the most general to the most specific.",
		Elements: &Field{Type: Record, Fields: []Field{
			{
				Name: "entries", Type: Array, Required: true, LenMin: 1, LenMax: 32, Doc: "The entries of this descriptor.",
				Elements: &Field{Type: Record, Fields: []Field{
					{Name: "key", Type: String, Required: true, LenMax: 256, Doc: "Key of the entry, as the rules spell it."},
					{Name: "source", Type: String, Required: true, OneOf: Sources, Doc: "Where the entry's value comes from."},
					{Name: "name", Type: String, LenMax: 256, Doc: "Name of the header, of the query argument or of the claim."},
					{
						Name: "field", Type: String, OneOf: []string{"id", "name", "username", "custom_id", "host"},
						Doc: "Which of its fields: id, username or custom_id of a consumer; id or name of a route; id, name or host of a service. Unset: the id.",
					},
					{Name: "value", Type: String, LenMax: 4096, Doc: "The value itself, for source 'value'."},
					{Name: "default", Type: String, LenMax: 4096, Doc: "What stands for a value that is not there. Unset: see on_missing."},
				}},
			},
			{Name: "cost", Type: Integer, Min: 0, Max: maxInteger, Doc: "How much this descriptor takes, in place of the request's cost."},
		}},
	}
}

package settings

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/schema"
)

// Settings is one plugin instance's configuration, complete: package schema describes each of its fields, and every default
// has been filled in.
type Settings struct {
	Mode      string `json:"mode"`
	GRPC      GRPC   `json:"grpc"`
	RulesPath string `json:"rules_path"`
	Redis     Redis  `json:"redis"`
	KeyPrefix string `json:"key_prefix"`

	LimitBy            string   `json:"limit_by"`
	HeaderName         string   `json:"header_name"`
	Path               string   `json:"path"`
	QueryArg           string   `json:"query_arg"`
	ClaimName          string   `json:"claim_name"`
	CompoundIdentifier []string `json:"compound_identifier"`

	Second     int64   `json:"second"`
	Minute     int64   `json:"minute"`
	Hour       int64   `json:"hour"`
	Day        int64   `json:"day"`
	Month      int64   `json:"month"`
	Year       int64   `json:"year"`
	Limit      []int64 `json:"limit"`
	WindowSize []int64 `json:"window_size"`
	WindowType string  `json:"window_type"`
	Namespace  string  `json:"namespace"`

	Domain      string       `json:"domain"`
	Descriptors []Descriptor `json:"descriptors"`
	Cost        int64        `json:"cost"`
	CostHeader  string       `json:"cost_header"`
	OnMissing   string       `json:"on_missing"`
	RequestID   bool         `json:"request_id"`

	FaultTolerant    bool    `json:"fault_tolerant"`
	FaultCode        int     `json:"fault_code"`
	Fallback         string  `json:"fallback"`
	FallbackFraction float64 `json:"fallback_fraction"`

	HideClientHeaders bool   `json:"hide_client_headers"`
	HeaderStyle       string `json:"header_style"`
	ErrorCode         int    `json:"error_code"`
	QuotaCode         int    `json:"quota_code"`
	ErrorMessage      string `json:"error_message"`
	ErrorFormat       string `json:"error_format"`
	ErrorBody         string `json:"error_body"`
	ErrorContentType  string `json:"error_content_type"`
	DryRun            bool   `json:"dry_run"`

	// What the plugin is configured on, as Kong tells it; not settings.
	RouteID   string `json:"-"`
	ServiceID string `json:"-"`
}

// GRPC is the weir server that mode grpc asks. Settings with equal ones share a connection.
type GRPC struct {
	Host       string `json:"host"`
	Port       int    `json:"port"`
	Socket     string `json:"socket"`
	TimeoutMS  int64  `json:"timeout"`
	SSL        bool   `json:"ssl"`
	SSLVerify  bool   `json:"ssl_verify"`
	ServerName string `json:"server_name"`
	CAFile     string `json:"ca_file"`
	CertFile   string `json:"cert_file"`
	KeyFile    string `json:"key_file"`
}

// Timeout is the deadline of a decision.
func (g *GRPC) Timeout() time.Duration { return time.Duration(g.TimeoutMS) * time.Millisecond }

// Redis is where mode embedded counts.
type Redis struct {
	Host             string `json:"host"`
	Port             int    `json:"port"`
	Socket           string `json:"socket"`
	Username         string `json:"username"`
	Password         string `json:"password"`
	Database         int    `json:"database"`
	TimeoutMS        int64  `json:"timeout"`
	SSL              bool   `json:"ssl"`
	SSLVerify        bool   `json:"ssl_verify"`
	ServerName       string `json:"server_name"`
	CAFile           string `json:"ca_file"`
	PoolSize         int    `json:"keepalive_pool_size"`
	SentinelMaster   string `json:"sentinel_master"`
	SentinelNodes    []Node `json:"sentinel_nodes"`
	SentinelUsername string `json:"sentinel_username"`
	SentinelPassword string `json:"sentinel_password"`
	ClusterNodes     []Node `json:"cluster_nodes"`
}

// Timeout is the deadline of a call.
func (r *Redis) Timeout() time.Duration { return time.Duration(r.TimeoutMS) * time.Millisecond }

// Enabled reports whether counters are in Redis, and not in memory.
func (r *Redis) Enabled() bool {
	return r.Host != "" || r.Socket != "" || len(r.SentinelNodes) > 0 || len(r.ClusterNodes) > 0
}

// Node is an address: a Sentinel's has a host, a Cluster node's has an ip, as Kong spells them.
type Node struct {
	Host string `json:"host"`
	IP   string `json:"ip"`
	Port int    `json:"port"`
}

// Descriptor is one question to weir's rules.
type Descriptor struct {
	Entries []Entry `json:"entries"`
	Cost    *int64  `json:"cost"`
}

// Entry is one key of a descriptor and where its value comes from.
type Entry struct {
	Key     string `json:"key"`
	Source  string `json:"source"`
	Name    string `json:"name"`
	Field   string `json:"field"`
	Value   string `json:"value"`
	Default string `json:"default"`
}

// Simple reports whether the limits stand in the plugin's config, and not in weir's rules.
func (s *Settings) Simple() bool { return len(s.Descriptors) == 0 }

// Parse reads a config as Kong sends it. What cannot be read is in the problems, each of which wraps schema.ErrConfig, and
// has its default in the result, which is never nil.
func Parse(config []byte) (*Settings, []error) {
	values, problems := schema.Normalize(config)
	s := &Settings{}
	// Both directions cannot fail: Normalize gives each field the type that it has here, which a test holds them to.
	text, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err != nil {
		problems = append(problems, fmt.Errorf("%w: %w", schema.ErrConfig, err))
	}
	s.RouteID, s.ServiceID = place(config)
	return s, append(problems, s.check()...)
}

// place reads what the plugin is configured on; "" for what it is not.
func place(config []byte) (route, service string) {
	var meta map[string]json.RawMessage
	if json.Unmarshal(config, &meta) != nil {
		return "", ""
	}
	text := func(name string) (value string) {
		if json.Unmarshal(meta[name], &value) != nil {
			return ""
		}
		return value
	}
	return text("route_id"), text("service_id")
}

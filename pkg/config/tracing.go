package config

// The values of Tracing.Protocol.
const (
	TracingHTTP = "http"
	TracingGRPC = "grpc"
)

// Tracing is where spans go. What it does not say, the variables OTEL_* do: the collector's address, its certificates, the
// size of the queue and so on.
type Tracing struct {
	Enabled           bool    `yaml:"enabled" doc:"Send spans to an OpenTelemetry collector, by OTLP; where it is, OTEL_EXPORTER_OTLP_ENDPOINT says"`
	Protocol          string  `yaml:"protocol" oneof:"http|grpc" doc:"OTLP over HTTP, to port 4318 by default, or over gRPC, to port 4317"`
	ServiceName       string  `yaml:"service_name" doc:"service.name of the spans"`
	ServiceNamespace  string  `yaml:"service_namespace" doc:"service.namespace of the spans; empty: none"`
	ServiceInstanceID string  `yaml:"service_instance_id" doc:"service.instance.id of the spans; empty: a random one at each start"`
	SamplingRate      float64 `yaml:"sampling_rate" min:"0" max:"1" doc:"Part of the traces that begin here which is recorded; those that a caller began follow the caller"`
}

package app

import (
	"io"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/envoy"
)

// jsonDecisions answers POST /json, for clients that do not speak gRPC: a RateLimitRequest in proto3's JSON form gets a
// RateLimitResponse with 200, or with 429 if it is over a limit. It counts as a gRPC call would. What cannot be read, or has no
// domain or no descriptors, gets 400.
func (a *app) jsonDecisions(service *envoy.Service) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body) // bounded by server.http.max_body_bytes
		if err != nil {
			jsonRefused(w, "the body cannot be read: "+err.Error())
			return
		}
		request := new(rlsv3.RateLimitRequest)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: false}).Unmarshal(body, request); err != nil {
			jsonRefused(w, "the body is no RateLimitRequest: "+err.Error())
			return
		}
		call := envoy.Call{Traceparent: r.Header.Get(envoy.TraceHeader)}
		if call.Request, err = proto.Marshal(request); err != nil {
			jsonRefused(w, "the body is no RateLimitRequest: "+err.Error())
			return
		}
		calls := []envoy.Call{call}
		service.Serve(r.Context(), calls)
		if calls[0].Code != codes.OK {
			status := http.StatusBadRequest
			if calls[0].Code == codes.Internal {
				status = http.StatusInternalServerError
			}
			http.Error(w, calls[0].Message, status)
			return
		}
		reply := new(rlsv3.RateLimitResponse)
		if err := proto.Unmarshal(calls[0].Reply, reply); err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		text, err := protojson.Marshal(reply)
		if err != nil {
			http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if reply.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = w.Write(text)
	})
}

func jsonRefused(w http.ResponseWriter, message string) {
	http.Error(w, message, http.StatusBadRequest)
}

package fastgrpc_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirhq/weir/pkg/fastgrpc"
)

// A handler is told of the header's field that it wants to know, of each call its own.
func TestKeepHeader(t *testing.T) {
	for keep, kept := range map[string]bool{"traceparent": true, "": false, "other": false} {
		var got []string
		_, address := start(t, fastgrpc.Options{KeepHeader: keep}, fastgrpc.Method{Path: echoPath, Handler: func(_ context.Context, calls []fastgrpc.Call) {
			for i := range calls {
				got = append(got, calls[i].Header)
			}
		}})
		connection := dial(t, address)
		sent := []string{"a", "a", "", "b", "", "c"}
		for _, value := range sent {
			ctx := t.Context()
			if value != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", value)
			}
			if err := connection.Invoke(ctx, echoPath, wrapperspb.Bytes(nil), new(wrapperspb.BytesValue)); err != nil {
				t.Fatal(err)
			}
		}
		for i, value := range sent {
			want := value
			if !kept {
				want = ""
			}
			if got[i] != want {
				t.Errorf("with KeepHeader %q call %d has %q, want %q", keep, i, got[i], want)
			}
		}
	}
}

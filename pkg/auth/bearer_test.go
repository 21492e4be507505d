package auth

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
)

func TestBearer(t *testing.T) {
	tests := []struct {
		name   string
		values []string
		want   string
		fault  string
	}{
		{"none", nil, "", ""},
		{"bearer", []string{"Bearer abc.def-_~+/=="}, "abc.def-_~+/==", ""},
		{"scheme in any case", []string{"bEARER abc"}, "abc", ""},
		{"more spaces", []string{"Bearer   abc "}, "abc", ""},
		{"as long as allowed", []string{"Bearer " + strings.Repeat("a", MaxToken)}, strings.Repeat("a", MaxToken), ""},
		{"two headers", []string{"Bearer a", "Bearer a"}, "", "2 Authorization headers"},
		{"another scheme", []string{"Basic dXNlcjpwYXNz"}, "", "no bearer token"},
		{"no scheme", []string{"abc"}, "", "no bearer token"},
		{"empty header", []string{""}, "", "no bearer token"},
		{"empty token", []string{"Bearer "}, "", "empty"},
		{"scheme alone", []string{"Bearer"}, "", "empty"},
		{"two tokens", []string{"Bearer a b"}, "", "characters"},
		{"comma", []string{"Bearer a,Bearer b"}, "", "characters"},
		{"a line break", []string{"Bearer a\nb"}, "", "characters"},
		{"no ASCII", []string{"Bearer é"}, "", "characters"},
		{"too long", []string{"Bearer " + strings.Repeat("a", MaxToken+1)}, "", "16385 bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			check := func(via, token string, err error) {
				if tt.fault == "" && (token != tt.want || err != nil) {
					t.Errorf("%s: got %q (%v), want %q", via, token, err, tt.want)
				}
				if tt.fault != "" && (token != "" || !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), tt.fault)) {
					t.Errorf("%s: got %q (%v), want an error about %s", via, token, err, tt.fault)
				}
			}
			token, err := FromRequest(&http.Request{Header: http.Header{"Authorization": tt.values}})
			check("HTTP", token, err)
			incoming := metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": tt.values})
			token, err = FromContext(incoming)
			check("gRPC", token, err)
		})
	}
	if token, err := FromContext(t.Context()); token != "" || err != nil {
		t.Errorf("without metadata: %q (%v)", token, err)
	}
}

func FuzzBearer(f *testing.F) {
	f.Add("Bearer abc")
	f.Add("bearer  =")
	f.Fuzz(func(t *testing.T, header string) {
		token, err := fromHeader([]string{header})
		if (token == "") != (err != nil) {
			t.Errorf("%q gives %q and %v", header, token, err)
		}
		if err == nil && (!isToken68(token) || !strings.Contains(header, token)) {
			t.Errorf("%q gives %q", header, token)
		}
	})
}

func TestChallenge(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{ErrNoToken, `Bearer realm="weir"`},
		{ErrUnauthenticated, `Bearer realm="weir", error="invalid_token"`},
		{ErrForbidden, `Bearer realm="weir", error="insufficient_scope"`},
	}
	for _, tt := range tests {
		if got := Challenge(tt.err); got != tt.want {
			t.Errorf("%v: got %s, want %s", tt.err, got, tt.want)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:8080": true, "127.9.9.9:1": true, "[::1]:8080": true, "localhost:80": true, "LocalHost.:80": true, "localhost": true,
		"127.0.0.1": true, "::1": true, "[::1]": true, "[::ffff:127.0.0.1]:80": true, "unix:/run/weir.sock": true,
		"unix:///run/weir.sock": true, "/run/weir.sock": true, "@weir": true,
		"": false, ":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:80": false, "example.com:80": false,
		"localhost.example.com:80": false, "127.0.0.1.example.com:80": false, "[::ffff:10.0.0.1]:80": false, "2130706433:80": false,
	} {
		if got := IsLoopback(address); got != want {
			t.Errorf("%q: got %v", address, got)
		}
	}
}

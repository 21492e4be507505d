package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRuleSources(t *testing.T) {
	answer := `{"ready":false,"components":[],"rules":[{"source":"files","version":"ab12","rules":3,"since":"2026-01-02T03:04:05Z"},` +
		`{"source":"xds","version":"","rules":0,"problem":"no good"}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	options := transportOptions{timeout: 10 * time.Second}
	sources, err := options.ruleSources(t.Context(), server.URL+"/")
	if err != nil || len(sources) != 2 || sources[0].Version != "ab12" || sources[0].Rules != 3 || sources[1].Problem != "no good" {
		t.Errorf("%+v, %v", sources, err)
	}
	answer = "hello"
	for address, want := range map[string]string{
		server.URL: "not as weir does", "localhost:8080": "write one such as", "http://127.0.0.1:1": "did not answer",
	} {
		if _, err := options.ruleSources(t.Context(), address); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
}

package respond_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/respond"
)

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		name    string
		options respond.Options
		want    string
	}{
		{"custom without names", respond.Options{Styles: respond.Custom}, "set at least one"},
		{"names without custom", respond.Options{Names: respond.Names{Limit: "A"}}, "without the style custom"},
		{"a space", custom("Rate Limit"), `"Rate Limit" is no header name`},
		{"a line break", custom("A\r\nB"), `"A\r\nB" is no header name`},
		{"a pseudo header", custom(":status"), `":status" is no header name`},
		{"framing", custom("Content-Length"), `"Content-Length" has another meaning`},
		{"retry after", custom("retry-after"), `"retry-after" has another meaning`},
		{"too long", custom(strings.Repeat("a", 65)), "65 bytes"},
		{"twice", respond.Options{Styles: respond.Custom, Names: respond.Names{Limit: "A", Reset: "a"}}, `"a" is named twice`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := respond.New(tt.options)
			if !errors.Is(err, respond.ErrOptions) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want one that says %s", err, tt.want)
			}
		})
	}
}

func custom(name string) respond.Options {
	return respond.Options{Styles: respond.Custom, Names: respond.Names{Limit: name}}
}

func TestParseStyle(t *testing.T) {
	tests := []struct {
		text  string
		want  respond.Style
		again string
	}{
		{"", 0, "none"},
		{"none", 0, "none"},
		{"ietf", respond.IETF, "ietf"},
		{" Kong , x-ratelimit ", respond.Kong | respond.XRateLimit, "x-ratelimit,kong"},
		{"x-ratelimit,envoy,draft-03,kong,ietf,custom", everyStyle, "x-ratelimit,envoy,draft-03,kong,ietf,custom"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := respond.ParseStyle(tt.text)
			if err != nil || got != tt.want || got.String() != tt.again {
				t.Errorf("got %v (%v), want %v", got, err, tt.again)
			}
		})
	}
	if _, err := respond.ParseStyle("ietf, rfc"); err == nil || !strings.Contains(err.Error(), `"rfc"`) || !strings.Contains(err.Error(), "draft-03") {
		t.Errorf("an unknown style: %v", err)
	}
	for _, name := range respond.StyleNames() {
		if style, err := respond.ParseStyle(name); err != nil || style.String() != name {
			t.Errorf("%s is read as %v (%v)", name, style, err)
		}
	}
}

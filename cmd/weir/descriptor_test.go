package main

import (
	"slices"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

func TestParseDescriptor(t *testing.T) {
	for text, want := range map[string][]ratelimit.Entry{
		"user=ann":             {{Key: "user", Value: "ann"}},
		"plan=free,user=ann":   {{Key: "plan", Value: "free"}, {Key: "user", Value: "ann"}},
		"path=/a?b=c":          {{Key: "path", Value: "/a?b=c"}},
		"generic":              {{Key: "generic"}},
		"user=":                {{Key: "user"}},
		`list=a\,b,key\=x=\\n`: {{Key: "list", Value: "a,b"}, {Key: "key=x", Value: `\n`}},
	} {
		got, err := parseDescriptor(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("parseDescriptor(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "=x", "a=b,", ",a=b", "a=b,,c=d"} {
		if got, err := parseDescriptor(text); err == nil {
			t.Errorf("parseDescriptor(%q) = %v, want an error", text, got)
		}
	}
}

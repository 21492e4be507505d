package respond_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/respond"
)

func TestNegotiate(t *testing.T) {
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	kong := []respond.MediaType{respond.JSON, respond.ProblemJSON, respond.HTML, respond.Plain}
	tests := []struct {
		name, accept string
		offers       []respond.MediaType
		want         respond.MediaType
	}{
		{"none", "", nil, respond.ProblemJSON},
		{"none, other offers", "", kong, respond.JSON},
		{"curl", "*/*", nil, respond.ProblemJSON},
		{"curl, other offers", "*/*", kong, respond.JSON},
		{"browser", browser, kong, respond.HTML},
		{"problem by name", "application/problem+json", kong, respond.ProblemJSON},
		{"case and spaces", " Application/Problem+JSON ; Q=0.5 ", kong, respond.ProblemJSON},
		{"json by name", "application/json", nil, respond.JSON},
		{"axios", "application/json, text/plain, */*", nil, respond.JSON},
		{"quality", "application/json;q=0.4, text/plain;q=0.5", nil, respond.Plain},
		{"type with any subtype", "text/*", nil, respond.HTML},
		{"refused by name", "application/problem+json;q=0, */*", nil, respond.JSON},
		{"exact beats wide, whatever the order", "*/*;q=1, application/*;q=0, text/html;q=0, text/plain;q=0.1", nil, respond.Plain},
		{"nothing acceptable", "image/png", kong, respond.JSON},
		{"everything refused", "*/*;q=0", kong, respond.JSON},
		{"parameters", "text/html;level=1;q=0.9, application/json;charset=utf-8;q=0.8", nil, respond.HTML},
		{"quality that is none", "text/html;q=2, text/plain;q=x, application/json;q=0.1", nil, respond.JSON},
		{"infinity", "text/html;q=inf, application/json;q=0.1", nil, respond.JSON},
		{"rubbish", ";;,/,=,\x00,*", kong, respond.JSON},
		{"long", strings.Repeat("image/png,", 20) + "text/html", kong, respond.HTML},
		{"too many ranges", strings.Repeat("a/b,", 40) + "text/html", kong, respond.JSON},
		{"too long", strings.Repeat("x", 2000) + ",text/html", kong, respond.JSON},
		{"cut in the middle of a range", "text/plain," + strings.Repeat(" ", 1010) + "text/html", kong, respond.Plain},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := respond.Negotiate(tt.accept, tt.offers...); got != tt.want {
				t.Errorf("got %s, want %s", got.ContentType(), tt.want.ContentType())
			}
		})
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("text/html;q=0.5, */*")
	f.Add("a/b;q=")
	f.Fuzz(func(t *testing.T, accept string) {
		switch got := respond.Negotiate(accept, respond.HTML, respond.JSON); got {
		case respond.HTML, respond.JSON:
		default:
			t.Errorf("chose %v, which was not offered", got)
		}
	})
}

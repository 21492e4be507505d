package respond_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/pkg/respond"
)

func TestBody(t *testing.T) {
	limit := respond.Limit{Name: "per-user", Count: 100, Window: time.Minute, RetryAfter: 11 * time.Second, Denied: true}
	quota := respond.Limit{
		Name: "plan", Count: 1 << 20, Window: 24 * time.Hour, RetryAfter: time.Hour, Denied: true,
		Kind: ratelimit.Quota, Unit: "content-bytes",
	}
	one := respond.Decision{Denied: true, Limits: []respond.Limit{limit, {Name: "other", Count: 5, Window: time.Second, Remaining: 4}}}
	tests := []struct {
		name  string
		body  respond.Body
		media respond.MediaType
		d     respond.Decision
		want  string
	}{
		{
			"problem",
			respond.Body{RequestID: "r-1", Instance: "/orders?id=1"},
			respond.ProblemJSON, one,
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
				`"detail":"The limit 'per-user' allows 100 requests per 60 seconds. Try again in 11 seconds.",` +
				`"instance":"/orders?id=1","violated-policies":["per-user"],"retry_after":11,"request_id":"r-1"}`,
		},
		{
			"problem, quota",
			respond.Body{},
			respond.ProblemJSON,
			respond.Decision{Denied: true, Limits: []respond.Limit{limit, quota}},
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":402,` +
				`"detail":"The limit 'plan' allows 1048576 content-bytes per 86400 seconds. Try again in 3600 seconds.",` +
				`"violated-policies":["per-user","plan"],"retry_after":3600}`,
		},
		{
			"problem, the gateway's status",
			respond.Body{Status: 429},
			respond.ProblemJSON,
			respond.Decision{Denied: true, Cause: respond.ReducedCapacity},
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporary Reduced Capacity",` +
				`"status":429,"detail":"Requests cannot be counted at the moment.","violated-policies":[],"retry_after":1}`,
		},
		{
			"problem, refused",
			respond.Body{},
			respond.ProblemJSON,
			respond.Decision{Denied: true, Cause: respond.Refused},
			`{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Abnormal Usage Detected",` +
				`"status":429,"detail":"Requests of this kind are not served.","violated-policies":[]}`,
		},
		{
			"json",
			respond.Body{RequestID: "r-1"},
			respond.JSON, one,
			`{"message":"API rate limit exceeded","request_id":"r-1"}`,
		},
		{"json, no request id", respond.Body{Message: "slow \"down\""}, respond.JSON, one, `{"message":"slow \"down\""}`},
		{
			"html",
			respond.Body{Message: "<b>no</b>", RequestID: "<script>"},
			respond.HTML, one,
			"<!doctype html>\n<html lang=\"en\">\n<title>&lt;b&gt;no&lt;/b&gt;</title>\n<h1>&lt;b&gt;no&lt;/b&gt;</h1>\n" +
				"<p>Try again in 11 seconds.</p>\n<p>Request &lt;script&gt;</p>\n</html>\n",
		},
		{"plain", respond.Body{RequestID: "a\nb"}, respond.Plain, one, "API rate limit exceeded\nrequest_id: a%0Ab\n"},
		{"plain, no request id", respond.Body{}, respond.Plain, one, "API rate limit exceeded\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(tt.body.Append(nil, tt.media, &tt.d)); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestBodyIsContained: whatever the names and ids hold, the body is one JSON object, or HTML with the elements we wrote.
func TestBodyIsContained(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := anyDecision().Draw(t, "decision")
		body := respond.Body{
			Message: anyBytes(2000).Draw(t, "message"), RequestID: anyBytes(200).Draw(t, "id"), Instance: anyBytes(400).Draw(t, "instance"),
		}
		media := respond.MediaType(rapid.Uint8Range(0, 3).Draw(t, "media"))
		text := body.Append(nil, media, &d)
		if !utf8.Valid(text) || len(text) > 40_000 {
			t.Fatalf("%d bytes, valid UTF-8: %v", len(text), utf8.Valid(text))
		}
		switch media {
		case respond.ProblemJSON, respond.JSON:
			var object map[string]any
			if err := json.Unmarshal(text, &object); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		case respond.HTML:
			tokens := html.NewTokenizer(strings.NewReader(string(text)))
			for kind := tokens.Next(); kind != html.ErrorToken; kind = tokens.Next() {
				name, attributes := tokens.TagName()
				if kind == html.StartTagToken && (!strings.Contains(" html title h1 p ", " "+string(name)+" ") || attributes && string(name) != "html") {
					t.Fatalf("<%s> in %s", name, text)
				}
			}
		case respond.Plain:
		}
	})
}

package access

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/schema"
	"github.com/weirhq/weir/kongplugin/internal/settings"
	"github.com/weirhq/weir/pkg/respond"
)

const (
	formNegotiate = "negotiate"
	formGRPC      = "grpc"
	typeGRPC      = "application/grpc"
)

// forms are the fixed values of error_format besides grpc.
var forms = map[string]respond.MediaType{
	"json": respond.JSON, "problem": respond.ProblemJSON, "html": respond.HTML, "text": respond.Plain,
}

// speech is how an instance speaks to clients.
type speech struct {
	headers     *respond.Formatter
	format      string
	template    *template.Template // nil: none
	contentType string             // of the template's result
	asksID      bool               // the template shows the request's id
}

// reply is a response that ends a request.
type reply struct {
	status   int
	message  string
	decision *respond.Decision
	headers  []respond.Header
	template *template.Template // nil: one of the usual forms
}

// shown is what a template can show.
type shown struct {
	Message, RequestID string
	Status             int
	RetryAfter         int64  // seconds; 0: waiting does not help
	Name               string // of the limit that binds most
	Limit, Remaining   int64
	Window, Reset      int64 // seconds
}

func newSpeech(s *settings.Settings) (*speech, error) {
	styles := map[string]respond.Style{
		"kong": respond.XRateLimit | respond.Kong, "ietf": respond.IETF, "envoy": respond.Envoy, "none": 0,
	}
	headers, err := respond.New(respond.Options{Styles: styles[s.HeaderStyle]})
	if err != nil {
		return nil, fmt.Errorf("header_style: %w", err)
	}
	p := &speech{headers: headers, format: s.ErrorFormat, contentType: s.ErrorContentType}
	if s.ErrorBody == "" {
		return p, nil
	}
	if strings.ContainsFunc(s.ErrorContentType, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w: error_content_type: write visible ASCII", schema.ErrConfig)
	}
	p.template, err = template.New("error_body").Option("missingkey=error").Parse(s.ErrorBody)
	if err == nil {
		err = p.template.Execute(&bytes.Buffer{}, shown{}) // finds the names that do not exist
	}
	if err != nil {
		return nil, fmt.Errorf("%w: error_body: %w", schema.ErrConfig, err)
	}
	p.asksID = strings.Contains(s.ErrorBody, "RequestID")
	return p, nil
}

// render makes the response. It asks Kong only what it needs to; what Kong does not say is left out.
func (p *speech) render(l *lookup, r *reply) (status int, body []byte, headers []respond.Header) {
	format, accept := p.format, ""
	if format == formNegotiate {
		if asked, err := l.kong.Headers("accept", "content-type"); err == nil {
			accept = asked["accept"]
			if isGRPC(asked["content-type"]) {
				format = formGRPC
			}
		}
	}
	if format == formGRPC {
		if r.decision.Cause != respond.ReducedCapacity {
			r.status = http.StatusTooManyRequests // Kong makes RESOURCE_EXHAUSTED of it, and of no other
		}
		return r.status, nil, append(r.headers,
			respond.Header{Name: "Content-Type", Value: typeGRPC},
			respond.Header{Name: "grpc-message", Value: grpcMessage(r.message)})
	}
	id := ""
	if p.format == formNegotiate && r.template == nil || r.template != nil && p.asksID || l.texts["request id"] != "" {
		id, _ = l.requestID()
	}
	if r.template != nil {
		if text, err := p.fill(r, id); err == nil {
			return r.status, text, append(r.headers, respond.Header{Name: "Content-Type", Value: p.contentType})
		}
	}
	media, fixed := forms[format]
	if !fixed {
		media = respond.Negotiate(accept, respond.JSON, respond.ProblemJSON, respond.HTML, respond.Plain)
	}
	text := respond.Body{Status: r.status, Message: r.message, RequestID: id}
	return r.status, text.Append(nil, media, r.decision), append(r.headers, respond.Header{Name: "Content-Type", Value: media.ContentType()})
}

func (p *speech) fill(r *reply, id string) ([]byte, error) {
	values := shown{Message: r.message, RequestID: respond.EscapeName(id), Status: r.status, RetryAfter: r.decision.RetryAfter()}
	if id == "" {
		values.RequestID = ""
	}
	if i := r.decision.Tightest(); i >= 0 {
		l := &r.decision.Limits[i]
		values.Name, values.Limit, values.Remaining = respond.EscapeName(l.Name), l.Count, l.Remaining
		values.Window, values.Reset = seconds(l.Window), seconds(l.ResetAfter)
	}
	var out bytes.Buffer
	err := r.template.Execute(&out, values)
	return out.Bytes(), err
}

// seconds rounds up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// isGRPC reports whether a content type is gRPC's: application/grpc, application/grpc+proto. gRPC-Web, which is plain HTTP,
// is not.
func isGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(contentType)), typeGRPC)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';' || rest[0] == ' ')
}

// grpcMessage percent-encodes text as gRPC over HTTP/2 wants it.
func grpcMessage(text string) string {
	var out strings.Builder
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' && c != '%' {
			out.WriteByte(c)
		} else {
			out.WriteString("%" + strings.ToUpper(strconv.FormatInt(int64(c)+0x100, 16)[1:]))
		}
	}
	return out.String()
}

package k1s0

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/auth"
)

// Root begins the paths of the REST API.
const Root = "/api/v1/ratelimit"

// route is one method of one path. What its handler returns as an error is answered in the shape that all errors have.
type route struct {
	method, path string
	role         auth.Role // NoRole: open to everyone
	handle       func(*call) error
}

// routes are all there are.
func (s *Service) routes() []route {
	return []route{
		{http.MethodPost, "/check", auth.NoRole, s.restCheck},
		{http.MethodGet, "/rules", auth.Auditor, s.restList},
		{http.MethodPost, "/rules", auth.Operator, s.restCreate},
		{http.MethodGet, "/rules/{id}", auth.Auditor, s.restGet},
		{http.MethodPut, "/rules/{id}", auth.Operator, s.restUpdate},
		{http.MethodDelete, "/rules/{id}", auth.Admin, s.restDelete},
		{http.MethodGet, "/usage", auth.Auditor, s.restUsage},
		{http.MethodPost, "/reset", auth.Operator, s.restReset},
		{http.MethodGet, "/audit", auth.Auditor, s.restAudit},
		{http.MethodGet, "/openapi.json", auth.NoRole, s.restDocument},
	}
}

// Handler serves the REST API below Root, and answers every other path as NotFound does. It is for clean paths: others it
// redirects.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	allowed := map[string][]string{}
	for _, route := range s.routes() {
		mux.Handle(route.method+" "+Root+route.path, s.serve(route))
		allowed[route.path] = append(allowed[route.path], route.method)
		if route.method == http.MethodGet {
			allowed[route.path] = append(allowed[route.path], http.MethodHead)
		}
	}
	for path, methods := range allowed {
		mux.Handle(Root+path, s.MethodNotAllowed(methods...))
	}
	mux.Handle("/", s.NotFound())
	return mux
}

// NotFound answers every path as one that is not there.
func (s *Service) NotFound() http.Handler {
	return s.serve(route{handle: func(*call) error {
		return &Error{Code: CodeNotFound, Message: "there is nothing at this path: " + Root + "/openapi.json lists what there is"}
	}})
}

// MethodNotAllowed answers any method as one that a path does not have.
func (s *Service) MethodNotAllowed(allowed ...string) http.Handler {
	slices.Sort(allowed)
	list := strings.Join(allowed, ", ")
	return s.serve(route{handle: func(c *call) error {
		c.header().Set("Allow", list)
		return &Error{Code: CodeMethodNotAllowed, Message: "this path has the methods " + list}
	}})
}

// call is one request to the REST API.
type call struct {
	*http.Request
	service *Service
	caller  Caller
	writer  http.ResponseWriter
	begun   bool // the answer
}

func (c *call) header() http.Header { return c.writer.Header() }

// serve makes a handler of a route.
func (s *Service) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, service: s, writer: w, caller: Caller{RequestID: requestID(r.Header.Values(requestIDHeader))}}
		w.Header().Set(requestIDHeader, c.caller.RequestID)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		defer c.recovered()
		err := c.authorize(route.role)
		if err == nil {
			err = route.handle(c)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

// authorize finds out who asks, and whether that one may.
func (c *call) authorize(role auth.Role) error {
	if role == auth.NoRole {
		return nil
	}
	if c.service.LocalOnly && !auth.IsLoopback(c.Host) {
		return &Error{Code: CodeForbidden, Message: "without authentication the server is for this machine: call it localhost"}
	}
	bearer, err := auth.FromRequest(c.Request)
	if err != nil {
		return err
	}
	who, err := c.service.Auth.Authorize(c.Context(), bearer, role)
	c.caller.Subject = who.Subject
	return err
}

// recovered turns a panic into an answer, unless one has begun: a client must not take half of it for a whole one.
func (c *call) recovered() {
	value := recover()
	if value == nil {
		return
	}
	c.service.Panicked(value, debug.Stack())
	if c.begun {
		panic(http.ErrAbortHandler)
	}
	c.fail(fmt.Errorf("panic: %v", value))
}

// errorBody is what every error is answered with.
type errorBody struct {
	Error struct {
		Code      Code          `json:"code"`
		Message   string        `json:"message"`
		RequestID string        `json:"request_id"`
		Details   []errorDetail `json:"details,omitempty"`
	} `json:"error"`
}

type errorDetail struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// fail answers an error.
func (c *call) fail(err error) {
	failed := asError(err)
	c.service.log(c.Context(), failed, c.caller, slog.String("method", c.Method), slog.String("path", shortened(c.URL.Path)))
	if errors.Is(err, auth.ErrUnauthenticated) || errors.Is(err, auth.ErrForbidden) {
		c.header().Set("WWW-Authenticate", auth.Challenge(err))
	}
	if failed.Code == CodeUnavailable {
		c.header().Set("Retry-After", "1")
	}
	var body errorBody
	body.Error.Code, body.Error.Message, body.Error.RequestID = failed.Code, failed.Message, c.caller.RequestID
	for i := range failed.Fields {
		field := &failed.Fields[i]
		body.Error.Details = append(body.Error.Details, errorDetail{field.Name, field.message(field.Name)})
	}
	c.answer(failed.Code.HTTP(), body)
}

// answer writes a JSON body.
func (c *call) answer(status int, body any) {
	c.header().Set("Content-Type", "application/json")
	c.begun = true
	c.writer.WriteHeader(status)
	encoder := json.NewEncoder(c.writer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		c.service.Logger.DebugContext(c.Context(), "an answer was not sent", "error", err, "request_id", c.caller.RequestID)
	}
}

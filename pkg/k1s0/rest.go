package k1s0

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"path"
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

// Handler serves the REST API below Root, and answers every other path as one that is not there.
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
	missing := s.serve(route{handle: func(*call) error {
		return &Error{Code: CodeNotFound, Message: "there is nothing at this path: " + Root + "/openapi.json lists what there is"}
	}})
	mux.Handle("/", missing)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The mux would send a client of an unclean path elsewhere, with a page for people.
		if cleaned := path.Clean(r.URL.Path); cleaned != r.URL.Path && cleaned+"/" != r.URL.Path || r.URL.Path == Root+"/" {
			missing.ServeHTTP(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
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
}

func (c *call) header() http.Header { return c.writer.Header() }

// serve makes a handler of a route.
func (s *Service) serve(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := &call{Request: r, service: s, writer: w, caller: Caller{RequestID: requestID(r.Header.Values(requestIDHeader))}}
		w.Header().Set(requestIDHeader, c.caller.RequestID)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
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
	bearer, err := auth.FromRequest(c.Request)
	if err != nil {
		return err
	}
	who, err := c.service.Auth.Authorize(c.Context(), bearer, role)
	c.caller.Subject = who.Subject
	return err
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
	if failed.Code == CodeUnauthenticated || failed.Code == CodeForbidden {
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
	c.writer.WriteHeader(status)
	encoder := json.NewEncoder(c.writer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		c.service.Logger.DebugContext(c.Context(), "an answer was not sent", "error", err, "request_id", c.caller.RequestID)
	}
}

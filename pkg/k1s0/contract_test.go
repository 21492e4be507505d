package k1s0

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// document is the served OpenAPI document.
type document struct {
	t        testing.TB
	root     map[string]any
	compiler *jsonschema.Compiler
}

func readDocument(t testing.TB, text string) *document {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, root: value.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("openapi.json", value); err != nil {
		t.Fatal(err)
	}
	return d
}

// at follows a path of keys and the references on it, and returns what is there and its place, nil if there is nothing.
func (d *document) at(keys ...string) (any, string) {
	d.t.Helper()
	var value any = d.root
	place := ""
	for _, key := range append(keys, "") {
		if object, ok := value.(map[string]any); ok {
			if reference, ok := object["$ref"].(string); ok {
				place = strings.TrimPrefix(reference, "#")
				value = d.root
				for step := range strings.SplitSeq(strings.TrimPrefix(place, "/"), "/") {
					value = value.(map[string]any)[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)]
				}
			}
		}
		if key == "" {
			break
		}
		object, ok := value.(map[string]any)
		if !ok || object[key] == nil {
			return nil, ""
		}
		value, place = object[key], place+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
	}
	return value, place
}

// valid checks a body by the schema below keys.
func (d *document) valid(body []byte, keys ...string) error {
	d.t.Helper()
	_, place := d.at(keys...)
	if place == "" {
		return fmt.Errorf("no schema at %v", keys)
	}
	schema, err := d.compiler.Compile("openapi.json#" + place)
	if err != nil {
		d.t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// operations are all methods of all paths.
func (d *document) operations() map[string][]string {
	found := map[string][]string{}
	paths, _ := d.at("paths")
	for path, item := range paths.(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				found[path] = append(found[path], method)
			}
		}
	}
	return found
}

// contract checks answers by the document and notes which it has seen.
type contract struct {
	*document
	seen map[string]bool
}

// check checks an answer to METHOD PATH, the path as the document has it.
func (c *contract) check(method, path string, got reply) {
	c.t.Helper()
	status := fmt.Sprint(got.status)
	if found, _ := c.at("paths", path, strings.ToLower(method), "responses", status); found == nil {
		c.t.Errorf("%s %s answers %s, which is not documented: %s", method, path, status, got.body)
		return
	}
	c.seen[strings.ToLower(method)+" "+path+" "+status] = true
	response := []string{"paths", path, strings.ToLower(method), "responses", status}
	if content, _ := c.at(append(response, "content")...); content == nil {
		if got.body != "" {
			c.t.Errorf("%s %s answers %s with the body %s", method, path, status, got.body)
		}
	} else {
		if kind := got.header.Get("Content-Type"); kind != "application/json" {
			c.t.Errorf("%s %s answers %s with the type %q", method, path, status, kind)
		}
		if err := c.valid([]byte(got.body), append(response, "content", "application/json", "schema")...); err != nil {
			c.t.Errorf("%s %s answers %s with\n%s\n%v", method, path, status, got.body, err)
		}
	}
	headers, _ := c.at(append(response, "headers")...)
	named, _ := headers.(map[string]any)
	for name := range named {
		header, _ := c.at(append(response, "headers", name)...)
		if required, _ := header.(map[string]any)["required"].(bool); required && got.header.Get(name) == "" {
			c.t.Errorf("%s %s answers %s without the header %s", method, path, status, name)
		}
	}
}

const validRule = `{"scope":"user","identifier_pattern":"contract","limit":5,"window_seconds":60}`

// Every route and every status that the document has is answered, and nothing else.
func TestContract(t *testing.T) {
	s := newServer(t)
	c := &contract{document: readDocument(t, s.send(http.MethodGet, Root+"/openapi.json", "", "").body), seen: map[string]bool{}}
	send := func(s *server, method, path, token, body string, headers ...string) reply {
		t.Helper()
		template, _, _ := strings.Cut(path, "?")
		if strings.HasPrefix(template, "/rules/") {
			template = "/rules/{id}"
		}
		got := s.send(method, Root+path, token, body, headers...)
		c.check(method, template, got)
		return got
	}
	expect := func(status int, code Code, got reply) reply {
		t.Helper()
		if got.status != status {
			t.Errorf("status %d, want %d: %s", got.status, status, got.body)
		}
		if code != "" && !strings.Contains(got.body, `"code":"`+string(code)+`"`) {
			t.Errorf("code %s is not in %s", code, got.body)
		}
		return got
	}

	// What is right.
	expect(200, "", send(s, "GET", "/openapi.json", "", ""))
	expect(200, "", send(s, "POST", "/check", "", `{"scope":"user","identifier":"ann"}`))
	expect(200, "", send(s, "POST", "/check", "", `{"scope":"user","identifier":"blocked-1"}`))
	expect(200, "", send(s, "POST", "/check", "", `{"scope":"user","identifier":"free-1"}`))
	expect(200, "", send(s, "POST", "/check", "", `{"rule_id":"`+fileRuleID+`","cost":4}`))
	expect(200, "", send(s, "POST", "/check", "", `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"ann"}],"cost":1},{"entries":[{"key":"path","value":"/"}]}]}`))
	expect(200, "", send(s, "POST", "/check", "", `{"domain":"kong","descriptors":[{"entries":[{"key":"ip","value":"a"}],"limit":{"limit":1,"calendar":"month","algorithm":"fixed_window","kind":"quota","name":"own"}}]}`))
	created := expect(201, "", send(s, "POST", "/rules", "operator", validRule))
	var rule struct{ ID, Name string }
	if err := json.Unmarshal([]byte(created.body), &rule); err != nil || created.header.Get("Location") != Root+"/rules/"+rule.ID {
		t.Fatalf("%s, at %s (%v)", created.body, created.header.Get("Location"), err)
	}
	one := "/rules/" + rule.ID
	expect(200, "", send(s, "GET", one, "auditor", ""))
	expect(200, "", send(s, "PUT", one, "operator", validRule, "If-Match", created.header.Get("ETag")))
	expect(200, "", send(s, "GET", "/rules?scope=user&enabled_only=true&page=1&page_size=100", "auditor", ""))
	expect(200, "", send(s, "GET", "/usage?rule_id="+rule.ID, "auditor", ""))
	expect(200, "", send(s, "GET", "/usage?rule_id="+fileRuleID+"&subject=from-file", "auditor", ""))
	expect(200, "", send(s, "POST", "/reset", "operator", `{"scope":"user","identifier":"ann","window":"1h"}`))
	expect(200, "", send(s, "GET", "/audit?rule_id="+rule.ID+"&limit=1", "auditor", ""))

	// What clients do wrong.
	expect(400, CodeValidation, send(s, "POST", "/check", "", `{"scope":"user"}`))
	expect(404, CodeRuleNotFound, send(s, "POST", "/check", "", `{"rule_id":"`+missingID+`","subject":"ann"}`))
	expect(200, "", send(s, "POST", "/check", "", `{"scope":"user","identifier":"ann","request_id":"1"}`))
	expect(409, CodeConflict, send(s, "POST", "/check", "", `{"scope":"user","identifier":"bob","request_id":"1"}`))
	for _, route := range []struct{ method, path string }{{"GET", "/rules"}, {"GET", one}, {"DELETE", one}, {"GET", "/usage"}, {"GET", "/audit"}} {
		expect(400, CodeValidation, send(s, route.method, route.path+"?colour=blue", "admin", ""))
	}
	for _, route := range []struct{ method, path string }{{"POST", "/check"}, {"POST", "/rules"}, {"PUT", one}, {"POST", "/reset"}} {
		expect(400, CodeValidation, send(s, route.method, route.path, "admin", `{"colour":"blue"}`))
		expect(413, CodeBodyTooLarge, send(s, route.method, route.path, "admin", `{"name":"`+strings.Repeat("x", MaxBody)+`"}`))
		expect(415, CodeMediaType, send(s, route.method, route.path, "admin", `{}`, "Content-Type", "text/plain"))
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		body := ""
		if method == "PUT" {
			body = validRule
		}
		expect(404, CodeRuleNotFound, send(s, method, "/rules/"+missingID, "admin", body))
		expect(404, CodeRuleNotFound, send(s, method, "/rules/no-uuid", "admin", body))
	}
	expect(404, CodeRuleNotFound, send(s, "GET", "/usage?rule_id="+missingID, "auditor", ""))
	expect(409, CodeRuleExists, send(s, "POST", "/rules", "operator", validRule))
	expect(409, CodeReadOnly, send(s, "PUT", "/rules/"+fileRuleID, "operator", validRule))
	expect(409, CodeReadOnly, send(s, "DELETE", "/rules/"+fileRuleID, "admin", ""))
	expect(412, CodeStale, send(s, "PUT", one, "operator", validRule, "If-Match", `"1"`))
	expect(412, CodeStale, send(s, "DELETE", one, "admin", "", "If-Match", `"1"`))
	for _, r := range s.service.routes() {
		if r.role == auth.NoRole {
			continue
		}
		path := strings.Replace(r.path, "{id}", rule.ID, 1)
		expect(401, CodeUnauthenticated, send(s, r.method, path, "", ""))
		expect(401, CodeUnauthenticated, send(s, r.method, path, "stranger", ""))
		expect(403, CodeForbidden, send(s, r.method, path, "nobody", ""))
	}
	expect(403, CodeForbidden, send(s, "POST", "/rules", "auditor", validRule))
	expect(403, CodeForbidden, send(s, "DELETE", one, "operator", ""))
	expect(204, "", send(s, "DELETE", one, "admin", "", "If-Match", `"2"`))

	// What is not there.
	broken := newServer(t, withCounters(brokenStore{ratelimit.FailOpen}))
	if err := broken.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range broken.service.routes() {
		if r.role == auth.NoRole {
			continue
		}
		path, body := strings.Replace(r.path, "{id}", missingID, 1), ""
		switch {
		case r.path == "/usage":
			path += "?rule_id=" + missingID
		case r.path == "/reset":
			body = `{"scope":"user","identifier":"ann"}`
		case r.method == "POST" || r.method == "PUT":
			body = validRule
		}
		expect(503, CodeUnavailable, send(broken, r.method, path, "admin", body))
		expect(503, CodeUnavailable, send(broken, r.method, path, "issuer-away", body))
	}
	if text := broken.log.String(); !strings.Contains(text, "10.1.2.3") {
		t.Errorf("the log does not say why:\n%s", text)
	}

	for path, methods := range c.operations() {
		for _, method := range methods {
			responses, _ := c.at("paths", path, method, "responses")
			for status := range responses.(map[string]any) {
				if status != "default" && !c.seen[method+" "+path+" "+status] {
					t.Errorf("%s %s documents %s, which no test has seen", method, path, status)
				}
			}
		}
	}
}

// The document and the handlers have the same routes; other paths and methods are answered with the shape of all errors.
func TestRoutes(t *testing.T) {
	s := newServer(t)
	d := readDocument(t, string(OpenAPI()))
	documented := d.operations()
	for _, r := range s.service.routes() {
		if !slices.Contains(documented[r.path], strings.ToLower(r.method)) {
			t.Errorf("%s %s is not documented", r.method, r.path)
		}
		documented[r.path] = slices.DeleteFunc(documented[r.path], func(method string) bool { return method == strings.ToLower(r.method) })
	}
	for path, methods := range documented {
		if len(methods) > 0 {
			t.Errorf("%s has no handler for %v", path, methods)
		}
	}

	shaped := func(got reply, status int, code Code) {
		t.Helper()
		if got.status != status || !strings.Contains(got.body, string(code)) {
			t.Errorf("%d %s, want %d %s", got.status, got.body, status, code)
		}
		if err := d.valid([]byte(got.body), "components", "schemas", "Error"); err != nil {
			t.Errorf("%s: %v", got.body, err)
		}
	}
	for path := range d.operations() {
		path = strings.Replace(Root+path, "{id}", missingID, 1)
		for _, method := range []string{"PATCH", "OPTIONS", "TRACE", "BREW"} {
			got := s.send(method, path, "admin", "")
			shaped(got, http.StatusMethodNotAllowed, CodeMethodNotAllowed)
			if got.header.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow", method, path)
			}
		}
		shaped(s.send("GET", path+"/more/still", "admin", ""), http.StatusNotFound, CodeNotFound)
	}
	for _, path := range []string{"/", "/api", "/api/v1", Root, Root + "/", Root + "/rules/", Root + "/rules/a/b", "/favicon.ico"} {
		shaped(s.send("GET", path, "admin", ""), http.StatusNotFound, CodeNotFound)
	}
	if got := s.send("DELETE", Root+"/rules", "admin", ""); got.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow: %s", got.header.Get("Allow"))
	}
	if got := s.send("HEAD", Root+"/rules", "auditor", ""); got.status != http.StatusOK || got.body != "" {
		t.Errorf("HEAD: %d %s", got.status, got.body)
	}
}

// The examples of the document are what its schemas and the server take.
func TestExamples(t *testing.T) {
	s := newServer(t)
	d := readDocument(t, string(OpenAPI()))
	n := 0
	for path, methods := range d.operations() {
		for _, method := range methods {
			media := []string{"paths", path, method, "requestBody", "content", "application/json"}
			examples, _ := d.at(append(media, "examples")...)
			named, _ := examples.(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(named)) {
				n++
				text, err := json.Marshal(named[name].(map[string]any)["value"])
				if err != nil {
					t.Fatal(err)
				}
				if err := d.valid(text, append(media, "schema")...); err != nil {
					t.Errorf("%s %s, %s: %v", method, path, name, err)
				}
				if method != "post" {
					continue
				}
				if got := s.send("POST", Root+path, "admin", string(text)); got.status >= 300 {
					t.Errorf("POST %s, %s: %d %s", path, name, got.status, got.body)
				}
			}
		}
	}
	if n < 6 {
		t.Errorf("%d examples", n)
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirhq/weir/test/servers"
)

// hostile makes requests out of an OpenAPI document: valid ones, and ones that are wrong in every way that comes to mind.
type hostile struct {
	*rand.Rand
	document map[string]any
	paths    []string
	rules    []string // IDs that there are, or were
}

// nasty are texts that break what is careless.
var nasty = []string{
	"", " ", "*", "**", "../../etc/passwd", "..%2f..", "%00", "\x00", "\n", "\r\nX-Evil: 1", "'; DROP TABLE rules; --", "\" OR 1=1 --",
	"<script>alert(1)</script>", "{{7*7}}", "${jndi:ldap://x}", "\u2028", "\u202e", "é", "🦀", "null", "true", "-1", "0", "1e309", "NaN",
	strings.Repeat("x", 300), strings.Repeat("x", 9000), strings.Repeat("é", 600), "user", "user-001", "a:b:c", "a|b=c", "{user}",
	"018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d", "{018f3f5e-9d3c-7c7b-8f6e-0d9c1e2b3a4d}", "018F3F5E-9D3C-7C7B-8F6E-0D9C1E2B3A4D",
}

// numbers are written into bodies as they are.
var numbers = []string{
	"0", "-0", "1", "-1", "2", "100", "1.0", "1.5", "1e2", "1e400", "-1e400", "1E+2", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
	"1099511627776", "1099511627777", "-1099511627777", "316224000", "316224001", "1" + strings.Repeat("0", 400), "0.000000001", "1e-400",
}

func (h *hostile) pick(from []string) string { return from[h.IntN(len(from))] }

func (h *hostile) text() string {
	switch h.IntN(6) {
	case 0, 1:
		return h.pick(nasty)
	case 2, 3, 4:
		return h.pick([]string{"user", "user-001", "ann", "bob", "60s", "1h", "order-*", "*", "edge", "k1s0"})
	}
	random := make([]rune, h.IntN(40))
	for i := range random {
		random[i] = rune(h.IntN(0x3000))
	}
	return string(random)
}

// resolved follows a reference.
func (h *hostile) resolved(schema map[string]any) map[string]any {
	reference, ok := schema["$ref"].(string)
	if !ok {
		return schema
	}
	var at any = h.document
	for step := range strings.SplitSeq(strings.TrimPrefix(reference, "#/"), "/") {
		at = at.(map[string]any)[step]
	}
	return h.resolved(at.(map[string]any))
}

// value writes JSON that is mostly what a schema asks for.
func (h *hostile) value(schema map[string]any, depth int) string {
	schema = h.resolved(schema)
	if h.IntN(25) == 0 || depth > 6 {
		return h.anything(depth)
	}
	if choices, ok := schema["oneOf"].([]any); ok {
		return h.value(choices[h.IntN(len(choices))].(map[string]any), depth+1)
	}
	if choices, ok := schema["enum"].([]any); ok {
		return quoted(choices[h.IntN(len(choices))])
	}
	kind, _ := schema["type"].(string)
	if kinds, ok := schema["type"].([]any); ok {
		kind, _ = kinds[0].(string)
	}
	switch kind {
	case "object":
		return h.object(schema, depth)
	case "array":
		items, _ := schema["items"].(map[string]any)
		var elements []string
		for range h.IntN(4) {
			elements = append(elements, h.value(items, depth+1))
		}
		return "[" + strings.Join(elements, ",") + "]"
	case "integer":
		if h.IntN(3) > 0 {
			return fmt.Sprint(1 + h.IntN(5))
		}
		return h.pick(numbers)
	case "boolean":
		return h.pick([]string{"true", "false"})
	default:
		return quoted(h.text())
	}
}

func (h *hostile) object(schema map[string]any, depth int) string {
	properties, _ := schema["properties"].(map[string]any)
	required, _ := schema["required"].([]any)
	var members []string
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) && h.IntN(10) > 0 || h.IntN(3) == 0 {
			members = append(members, quoted(name)+":"+h.value(properties[name].(map[string]any), depth+1))
		}
	}
	if len(members) > 0 && h.IntN(12) == 0 {
		members = append(members, members[h.IntN(len(members))]) // the same key twice
	}
	if h.IntN(12) == 0 {
		members = append(members, quoted(h.text())+":"+h.anything(depth))
	}
	h.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

func (h *hostile) anything(depth int) string {
	switch n := h.IntN(8); {
	case n == 0 && depth < 6:
		return "{" + quoted(h.text()) + ":" + h.anything(depth+1) + "}"
	case n == 1 && depth < 6:
		return "[" + h.anything(depth+1) + "]"
	case n == 2:
		return strings.Repeat("[", 1+h.IntN(200))
	case n == 3:
		return "null"
	case n == 4:
		return h.pick(numbers)
	case n == 5:
		return h.pick([]string{"true", "tru", "'x'", "\"\\ud800\"", "\"\xff\"", "{]", "1 2", "//", "\ufeff{}"})
	default:
		return quoted(h.text())
	}
}

func quoted(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "null"
	}
	return string(text)
}

// spoiled breaks a body as bytes.
func (h *hostile) spoiled(body string) string {
	switch h.IntN(20) {
	case 0:
		return body[:h.IntN(len(body)+1)]
	case 1:
		return body + h.anything(0)
	case 2:
		at := h.IntN(len(body) + 1)
		return body[:at] + string([]byte{byte(h.IntN(256))}) + body[at:]
	case 3:
		return "[" + body + "]"
	default:
		return body
	}
}

// request makes one request and tells its method.
func (h *hostile) request(t *testing.T, base string) (request *http.Request, method string) {
	t.Helper()
	path := h.pick(h.paths)
	item := h.document["paths"].(map[string]any)[path].(map[string]any)
	methods := slices.Sorted(maps.Keys(item))
	methods = slices.DeleteFunc(methods, func(name string) bool { return name == "parameters" })
	method = strings.ToUpper(h.pick(methods))
	operation := item[strings.ToLower(method)].(map[string]any)
	if h.IntN(20) == 0 {
		method = h.pick([]string{"PATCH", "OPTIONS", "TRACE", "HEAD", "PROPFIND", "GET", "POST", "PUT", "DELETE"})
	}

	id := h.text()
	if h.IntN(3) > 0 {
		id = h.pick(h.rules)
	}
	address := base + api + strings.ReplaceAll(path, "{id}", url.PathEscape(id))
	if h.IntN(30) == 0 {
		address = base + api + "/" + url.PathEscape(h.text()) + h.pick([]string{"", "/", "//", "/..", "/%2e%2e/"})
	}
	query := url.Values{}
	parameters, _ := operation["parameters"].([]any)
	for _, each := range parameters {
		parameter := h.resolved(each.(map[string]any))
		if parameter["in"] == "query" && h.IntN(2) == 0 {
			query.Add(parameter["name"].(string), h.pick([]string{h.text(), h.pick(numbers), "true"}))
		}
	}
	if h.IntN(15) == 0 {
		query.Add(h.text(), h.text())
	}
	address += "?" + query.Encode() + h.pick([]string{"", "", "", "", "", "", "", "", "", "", "", "", "", "%zz", ";", "&=&", "#"})

	var body io.Reader
	content, hasBody := operation["requestBody"].(map[string]any)
	if hasBody {
		media := h.resolved(content)["content"].(map[string]any)["application/json"].(map[string]any)
		body = strings.NewReader(h.spoiled(h.value(media["schema"].(map[string]any), 0)))
	}
	request, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		return nil, "" // what no client can send
	}
	if hasBody && h.IntN(20) > 0 {
		request.Header.Set("Content-Type", "application/json")
	} else {
		request.Header.Set("Content-Type", h.pick([]string{"text/plain", "application/json; charset=utf-7", "multipart/form-data", ";;", "application/jsonx"}))
	}
	for _, name := range []string{"If-Match", "X-Request-Id", "Authorization", "Accept", "Content-Encoding"} {
		if h.IntN(8) == 0 {
			request.Header.Set(name, headerValue.ReplaceAllString(h.pick([]string{h.text(), `"1"`, `W/"1"`, "*", `"1", "2"`, "Bearer x", "gzip"}), "?"))
		}
	}
	return request, method
}

// headerValue matches what Go's client refuses to send.
var headerValue = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x7f]`)

// leak matches what a message must not tell: Go's own words, SQL, addresses, paths of this machine, stacks.
var leak = regexp.MustCompile(`(?i)goroutine|\.go:\d|runtime error|panic|nil pointer|sqlite|postgres|SELECT |INSERT |UPDATE weir|constraint|json: |strconv|invalid character|dial tcp|127\.0\.0\.1|/tmp/|/home/|weir_rules|/etc/weir`)

// Ten thousand requests that nobody should send: no status above 499, no answer in another shape, nothing told of the inside.
func TestK1s0HostileRequests(t *testing.T) {
	const requests = 10_000
	weir := servers.Weir(t, servers.WeirOptions{
		Rules: map[string]string{"rules.yaml": k1s0Rules}, Set: map[string]string{"auth.insecure": "true"},
	})
	text := call(t, weir, http.StatusOK, "GET", "/openapi.json", "", "").body
	h := &hostile{Rand: rand.New(rand.NewPCG(1, 2)), document: decoded[map[string]any](t, answer{body: text})}
	listed := decoded[struct{ Rules []storedRule }](t, call(t, weir, http.StatusOK, "GET", "/rules", "", ""))
	for _, rule := range listed.Rules {
		h.rules = append(h.rules, rule.ID)
	}
	h.paths = slices.Sorted(maps.Keys(h.document["paths"].(map[string]any)))

	resource, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", resource); err != nil {
		t.Fatal(err)
	}
	shape, err := compiler.Compile("openapi.json#/components/schemas/Error")
	if err != nil {
		t.Fatal(err)
	}

	client := restClient(t, 4)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	seen := map[int]int{}
	for n := 0; n < requests; {
		request, method := h.request(t, weir.HTTP())
		if request == nil {
			continue
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatalf("%s %s: %v", method, request.URL, err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		n++
		seen[response.StatusCode]++
		if created := response.Header.Get("Location"); created != "" {
			h.rules = append(h.rules, created[strings.LastIndexByte(created, '/')+1:])
		}
		what := fmt.Sprintf("%s %s: %d %.300s", method, request.URL, response.StatusCode, body)
		if response.StatusCode >= 500 || response.StatusCode < 200 || response.StatusCode >= 300 && response.StatusCode < 400 {
			t.Errorf("status: %s", what)
		}
		if response.Header.Get("X-Request-Id") == "" {
			t.Errorf("no request id: %s", what)
		}
		if response.StatusCode < 400 || method == http.MethodHead {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(body)))
		if err == nil {
			err = shape.Validate(value)
		}
		if err != nil {
			t.Errorf("shape: %s: %v", what, err)
		}
		// What a request said may be repeated to it.
		if found := leak.FindString(string(body)); found != "" && !strings.Contains(strings.ToLower(fmt.Sprint(request.URL, request.Header)), strings.ToLower(found)) {
			t.Errorf("leak of %q: %s", found, what)
		}
		if t.Failed() && n > 200 {
			t.FailNow()
		}
	}
	for _, status := range []int{200, 201, 400, 404, 405, 409, 412, 415} {
		if seen[status] == 0 {
			t.Errorf("no request was answered %d: the generator does not reach it", status)
		}
	}
	figure(t, "%d generated requests: %v", requests, seen)
	call(t, weir, http.StatusOK, "POST", "/check", "", `{"scope":"user","identifier":"user-001"}`)
	if log := weir.Process().Log(); strings.Contains(log, "panic") || strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", log)
	}
}

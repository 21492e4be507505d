package k1s0

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/test/servers"
)

// errorOf reads an error's body.
func errorOf(t *testing.T, got reply) (code Code, requestID string, details map[string]string) {
	t.Helper()
	var body errorBody
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatalf("%s: %v", got.body, err)
	}
	details = map[string]string{}
	for _, detail := range body.Error.Details {
		details[detail.Field] = detail.Message
	}
	return body.Error.Code, body.Error.RequestID, details
}

func TestFaultyBodies(t *testing.T) {
	s := newServer(t)
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for name, c := range map[string]struct{ body, want string }{
		"nothing":          {" ", "no JSON"},
		"cut off":          {`{"scope":"user"`, "no JSON"},
		"no object":        {`[1]`, "no JSON object"},
		"a word":           {`null`, "no JSON object"},
		"something after":  {`{"scope":"user","identifier":"ann"} {}`, "follows"},
		"garbage after":    {`{"scope":"user","identifier":"ann"}}`, "follows"},
		"twice the same":   {`{"scope":"user","identifier":"ann","scope":"user"}`, `"scope" comes twice`},
		"twice, deeper":    {`{"domain":"d","descriptors":[{"entries":[{"key":"a","key":"b"}]}]}`, `"key" comes twice`},
		"escaped twice":    {`{"scope":"user","identifier":"ann","sc\u006fpe":"x"}`, `"scope" comes twice`},
		"deep":             {deep, "deeper"},
		"not UTF-8":        {"{\"scope\":\"user\",\"identifier\":\"\xff\"}", "UTF-8"},
		"single quotes":    {`{'scope':'user'}`, "at byte"},
		"lone surrogate":   {`{"scope":"user","identifier":"\ud800"}`, "identifier must be Unicode text"},
		"another case":     {`{"Scope":"user","identifier":"ann"}`, "Scope is unknown"},
		"number for text":  {`{"scope":"user","identifier":5}`, "identifier must be a string"},
		"text for number":  {`{"scope":"user","identifier":"a","cost":"1"}`, "cost must be an integer"},
		"fraction":         {`{"scope":"user","identifier":"a","cost":1.5}`, "cost must be an integer"},
		"too large":        {`{"scope":"user","identifier":"a","cost":1e30}`, "cost must be an integer"},
		"huge exponent":    {`{"scope":"user","identifier":"a","cost":1e999999999}`, "cost must be an integer"},
		"out of range":     {`{"scope":"user","identifier":"a","cost":1e18}`, "cost must be from"},
		"text for bool":    {`{"scope":"user","identifier":"a","peek":"yes"}`, "peek must be true or false"},
		"no window":        {`{"scope":"user","identifier":"a","window":"soon"}`, "window must be a duration"},
		"empty window":     {`{"scope":"user","identifier":"a","window":""}`, "window must be a duration"},
		"number as window": {`{"scope":"user","identifier":"a","window":60}`, "window must be a string"},
		"object for list":  {`{"domain":"d","descriptors":{}}`, "descriptors must be a list"},
		"number in list":   {`{"domain":"d","descriptors":[1]}`, "descriptors[0] must be an object"},
		"unknown, deeper":  {`{"domain":"d","descriptors":[{"entries":[{"key":"a","valeu":"b"}]}]}`, "descriptors[0].entries[0].valeu is unknown"},
		"text for object":  {`{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":"5/m"}]}`, "descriptors[0].limit must be an object"},
		"no limit in it":   {`{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"window_ms":1}}]}`, "descriptors[0].limit.limit is required"},
		"no window in it":  {`{"domain":"d","descriptors":[{"entries":[{"key":"a"}],"limit":{"limit":1}}]}`, "descriptors[0].limit.window_ms must be from 1"},
		"list of many":     {`{"domain":"d","descriptors":[` + strings.Repeat(`{},`, maxDescriptors) + `{}]}`, "descriptors must be at most 100"},
	} {
		t.Run(name, func(t *testing.T) {
			got := s.send(http.MethodPost, Root+"/check", "", c.body)
			if code, _, _ := errorOf(t, got); got.status != http.StatusBadRequest || code != CodeValidation {
				t.Errorf("%d %s", got.status, got.body)
			}
			if !strings.Contains(strings.ReplaceAll(got.body, `\"`, `"`), c.want) {
				t.Errorf("%s, want %q in it", got.body, c.want)
			}
		})
	}
	for _, body := range []string{
		`{"scope":"user","identifier":"a","cost":1.0}`, `{"scope":"user","identifier":"a","cost":1e1}`, `{"scope":"user","identifier":"a","cost":null,"window":null,"descriptors":null}`,
		"\n {\"scope\" : \"user\", \"identifier\": \"\\u0061\"}\n ",
	} {
		if got := s.send(http.MethodPost, Root+"/check", "", body); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
}

// All faulty fields are told at once: those of the wrong type, those out of range, and the unknown ones.
func TestAllFaultsAtOnce(t *testing.T) {
	got := newServer(t).send(http.MethodPost, Root+"/rules", "operator",
		`{"scope":"usr","identifier_pattern":"a\nb","limit":0,"window_seconds":"60","algorithm":"dice","burst":-1,"enabled":"yes","colour":"blue","name":7}`)
	_, _, details := errorOf(t, got)
	for field, want := range map[string]string{
		"scope":              "scope must be one of: service, user, endpoint",
		"identifier_pattern": "identifier_pattern must not hold control characters",
		"limit":              "limit must be greater than 0",
		"window_seconds":     "window_seconds must be an integer",
		"algorithm":          "algorithm must be one of: fixed_window, sliding_window, sliding_log, token_bucket, leaky_bucket",
		"burst":              "burst must be from 0 to 1099511627776",
		"enabled":            "enabled must be true or false",
		"colour":             "colour is unknown: the fields are name, scope, identifier_pattern, algorithm, enabled, limit, window_seconds, burst",
		"name":               "name must be a string",
	} {
		if details[field] != want {
			t.Errorf("%s: %q, want %q", field, details[field], want)
		}
	}
	if len(details) != 9 {
		t.Errorf("%d details: %v", len(details), details)
	}
	got = newServer(t).send(http.MethodPost, Root+"/rules", "operator", `{"scope":"user","identifier_pattern":"a","limit":5,"window_seconds":60,"algorithm":"fixed_window","burst":9}`)
	if _, _, details := errorOf(t, got); !strings.Contains(details["burst"], "does not fit") {
		t.Errorf("%v", details)
	}
}

func TestMediaTypes(t *testing.T) {
	s := newServer(t)
	for kind, want := range map[string]int{
		"application/json": 200, "application/json; charset=utf-8": 200, "Application/JSON;charset=UTF-8": 200,
		"application/json; charset=latin1": 415, "text/json": 415, "application/x-www-form-urlencoded": 415, "": 415, "json": 415, ";": 415,
	} {
		if got := s.send(http.MethodPost, Root+"/check", "", `{"scope":"user","identifier":"ann"}`, "Content-Type", kind); got.status != want {
			t.Errorf("%q: %d %s", kind, got.status, got.body)
		}
	}
}

func TestRequestIDs(t *testing.T) {
	s := newServer(t)
	for sent, kept := range map[string]bool{
		"abc-123": true, "req_abc123def456": true, "a/b:c=d+e@f#g~h.i": true, strings.Repeat("x", 128): true,
		"": false, "a b": false, "a\"b": false, "é": false, strings.Repeat("x", 129): false, "a;b": false,
	} {
		got := s.send(http.MethodGet, Root+"/rules", "", "", "X-Request-Id", sent)
		_, id, _ := errorOf(t, got)
		if id == "" || id != got.header.Get("X-Request-Id") || (id == sent) != kept {
			t.Errorf("sent %q, got %q and %q", sent, id, got.header.Get("X-Request-Id"))
		}
		if !strings.Contains(s.log.String(), id) {
			t.Errorf("%s is not in the log", id)
		}
	}
}

func TestEntityTags(t *testing.T) {
	s := newServer(t)
	rule := s.create("user", "tagged", 5)
	path := Root + "/rules/" + rule.ID
	if got := s.send(http.MethodGet, path, "auditor", ""); got.header.Get("ETag") != `"1"` {
		t.Errorf("ETag %s", got.header.Get("ETag"))
	}
	const body = `{"scope":"user","identifier_pattern":"tagged","limit":6,"window_seconds":60}`
	version := 1
	for _, c := range []struct {
		tag    string
		status int
	}{
		{`"0"`, 412},
		{`"2"`, 412},
		{`W/"1"`, 412},
		{`1`, 412},
		{`"1`, 412},
		{`"01"`, 412},
		{`"x"`, 412},
		{`"7", "8"`, 412},
		{"", 412},
		{`"1"`, 200},
		{`"1"`, 412},
		{`"9", "2"`, 200},
		{`*`, 200},
		{` "4" `, 200},
	} {
		got := s.send(http.MethodPut, path, "operator", body, "If-Match", c.tag)
		if got.status != c.status {
			t.Errorf("If-Match %s: %d %s, want %d", c.tag, got.status, got.body, c.status)
		}
		if got.status == http.StatusOK {
			version++
			if want := fmt.Sprintf(`"%d"`, version); got.header.Get("ETag") != want {
				t.Errorf("ETag %s, want %s", got.header.Get("ETag"), want)
			}
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		if got := s.send(method, Root+"/rules/"+missingID, "admin", body, "If-Match", `"x"`); got.status != http.StatusNotFound {
			t.Errorf("%s: %d %s", method, got.status, got.body)
		}
		if got := s.send(method, Root+"/rules/"+fileRuleID, "admin", body, "If-Match", `"x"`); got.status != http.StatusConflict {
			t.Errorf("%s: %d %s", method, got.status, got.body)
		}
	}
}

func TestListingGoesOnFromFilesToTheStore(t *testing.T) {
	s := newServer(t)
	for i := range 25 {
		s.create("user", fmt.Sprintf("stored-%d", i), 5)
	}
	s.create("endpoint", "/", 5)
	var all, paged []string
	whole, err := s.service.List(t.Context(), Filter{Page: 1, PageSize: 100})
	if err != nil || whole.HasNext || whole.Total != int64(len(whole.Rules)) {
		t.Fatalf("%+v, %v", whole, err)
	}
	for i, rule := range whole.Rules {
		all = append(all, rule.ID)
		if file := i < len(s.set.View().Files); (rule.Source == SourceFile) != file || file != (rule.Version == 0) || file != rule.CreatedAt.IsZero() {
			t.Errorf("rule %d is %+v", i, rule)
		}
	}
	for _, size := range []int64{1, 3, 7, 12, 13, 100} {
		paged = nil
		for number := int64(1); ; number++ {
			page, err := s.service.List(t.Context(), Filter{Page: number, PageSize: size})
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range page.Rules {
				paged = append(paged, rule.ID)
			}
			if page.HasNext != (int64(len(paged)) < page.Total) {
				t.Errorf("page %d of %d: has next %v after %d", number, size, page.HasNext, len(paged))
			}
			if !page.HasNext {
				break
			}
		}
		if strings.Join(paged, " ") != strings.Join(all, " ") {
			t.Errorf("pages of %d are\n%v, want\n%v", size, paged, all)
		}
	}
	beyond, err := s.service.List(t.Context(), Filter{Page: 1000, PageSize: 100})
	if err != nil || len(beyond.Rules) != 0 || beyond.HasNext || beyond.Total != whole.Total {
		t.Errorf("%+v, %v", beyond, err)
	}
	users, err := s.service.List(t.Context(), Filter{Scope: "user", EnabledOnly: true, Page: 1, PageSize: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range users.Rules {
		if rule.Scope != "user" || !rule.Enabled {
			t.Errorf("%+v", rule)
		}
	}
	for name, q := range map[string]string{"page": "page=0", "page_size": "page_size=101", "enabled_only": "enabled_only=yes", "scope": "scope=a&scope=b", "query": "a=%zz"} {
		_, _, details := errorOf(t, s.send(http.MethodGet, Root+"/rules?"+q, "auditor", ""))
		if details[name] == "" {
			t.Errorf("%s: %v", q, details)
		}
	}
}

// A rule of a file and one made through the API for the same place: refused when writing, told when a file brings it.
func TestFilesAndStoreDoNotFight(t *testing.T) {
	s := newServer(t)
	refusedBy := func(scope, pattern string) {
		t.Helper()
		_, err := s.service.Create(t.Context(), Caller{Subject: "tester"}, RuleInput{Scope: scope, Pattern: pattern, Limit: 1, WindowSeconds: 1})
		refused(t, err, CodeRuleExists)
	}
	refusedBy("user", "from-file")
	refusedBy("user", "vip-*")
	rule := s.create("user", "ann", 7)
	refusedBy("user", "ann")
	_, err := s.service.Update(t.Context(), Caller{Subject: "tester"}, rule.ID, RuleInput{Scope: "user", Pattern: "from-file", Limit: 1, WindowSeconds: 1}, 0)
	refused(t, err, CodeRuleExists)

	servers.Eventually(t, "the stored rule is in force", func() bool { return s.check(one("user", "ann")).Limit == 7 })
	s.writeRules("domain: k1s0\ndescriptors: [{key: user, value: ann, limits: [{limit: 2, window: 1h}]}]\n")
	s.set.Load(t.Context())
	if got := s.check(one("user", "ann")); got.Limit != 2 || got.RuleID == rule.ID {
		t.Errorf("the file's rule is not in force: %+v", got)
	}
	got := s.send(http.MethodGet, Root+"/rules/"+rule.ID, "auditor", "")
	if !strings.Contains(got.body, `"conflict":"a rule file has a rule for the same place"`) {
		t.Errorf("%s", got.body)
	}
	if err := s.set.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), rule.ID) {
		t.Errorf("ready: %v", err)
	}
	// It can be deleted, and moved to another place.
	moved, err := s.service.Update(t.Context(), Caller{Subject: "tester"}, rule.ID, RuleInput{Scope: "user", Pattern: "bob", Limit: 9, WindowSeconds: 3600, Enabled: true}, 0)
	if err != nil || moved.Conflict != "" {
		t.Errorf("%+v, %v", moved, err)
	}
	if got := s.check(one("user", "bob")); got.Limit != 9 {
		t.Errorf("%+v", got)
	}
	if err := s.set.Ready(t.Context()); err != nil {
		t.Errorf("ready: %v", err)
	}
}

func TestAuditNamesWhoAndWhat(t *testing.T) {
	s := newServer(t)
	created := s.send(http.MethodPost, Root+"/rules", "operator", validRule, "X-Request-Id", "change-1")
	var rule ruleBody
	if err := json.Unmarshal([]byte(created.body), &rule); err != nil {
		t.Fatal(err)
	}
	s.send(http.MethodPut, Root+"/rules/"+rule.ID, "admin", strings.Replace(validRule, `"limit":5`, `"limit":6`, 1), "X-Request-Id", "change-2")
	s.send(http.MethodDelete, Root+"/rules/"+rule.ID, "admin", "", "X-Request-Id", "change-3")
	var list auditBody
	if err := json.Unmarshal([]byte(s.send(http.MethodGet, Root+"/audit?rule_id="+rule.ID+"&limit=2", "auditor", "").body), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Entries) != 2 || list.NextBefore == 0 || list.Entries[0].Action != "delete" || list.Entries[1].Action != "update" ||
		list.Entries[1].Subject != "admin" || list.Entries[1].RequestID != "change-2" ||
		!strings.Contains(string(list.Entries[1].Before), `"limit":5`) || !strings.Contains(string(list.Entries[1].After), `"limit":6`) {
		t.Errorf("%+v", list)
	}
	var rest auditBody
	more := fmt.Sprintf("%s/audit?before=%d", Root, list.NextBefore)
	if err := json.Unmarshal([]byte(s.send(http.MethodGet, more, "auditor", "").body), &rest); err != nil {
		t.Fatal(err)
	}
	if len(rest.Entries) != 1 || rest.NextBefore != 0 || rest.Entries[0].Action != "create" || rest.Entries[0].Subject != "operator" || rest.Entries[0].Before != nil {
		t.Errorf("%+v", rest)
	}
	if got := s.send(http.MethodGet, Root+"/audit?rule_id=none", "auditor", ""); got.body != "{\"entries\":[]}\n" {
		t.Errorf("%s", got.body)
	}
}

func TestReset(t *testing.T) {
	s := newServer(t)
	reset := func(body, want string) {
		t.Helper()
		if got := s.send(http.MethodPost, Root+"/reset", "operator", body); got.status != http.StatusOK || got.body != `{"success":true,"message":"`+want+"\"}\n" {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	full := func(identifier string, cost int64) {
		t.Helper()
		check := one("user", identifier)
		if check.Cost = cost; !s.check(check).Allowed {
			t.Errorf("%s is not as never used", identifier)
		}
	}
	for range 2 {
		full("from-file", 3)
		full("vip-1", 2)
		full("stranger", 100)
		full("shared-1", 4)
		for _, identifier := range []string{"from-file", "vip-1", "stranger"} {
			reset(`{"scope":"user","identifier":"`+identifier+`"}`, "rate limit counter reset for user:"+identifier)
		}
		reset(`{"scope":"user","identifier":"shared-2"}`, "rate limit counter reset for user:shared-2") // for all that share it
	}
	for range 2 {
		check := one("user", "stranger")
		check.Window, check.Cost = 2*60e9, 100
		if !s.check(check).Allowed {
			t.Error("the counter over another window is not as never used")
		}
		reset(`{"scope":"user","identifier":"stranger","window":"2m"}`, "rate limit counter reset for user:stranger")
	}
	if text := s.log.String(); !strings.Contains(text, "hash of 8 bytes") || strings.Contains(text, "stranger") {
		t.Errorf("the log shows identifiers, or not even their hashes:\n%s", text)
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	s := newServer(t)
	var caught any
	s.service.Panicked = func(value any, stack []byte) { caught = value }
	handler := s.service.serve(route{handle: func(*call) error { panic("oops /etc/secret") }})
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	if code, _, _ := errorOf(t, reply{body: recorder.Body.String()}); recorder.Code != 500 || code != CodeInternal || strings.Contains(recorder.Body.String(), "oops") {
		t.Errorf("%d %s", recorder.Code, recorder.Body)
	}
	if caught != "oops /etc/secret" {
		t.Errorf("told of %v", caught)
	}
}

// A web page that has its own name lead to this machine must not administrate a server without authentication.
func TestServerWithoutAuthenticationIsForThisMachine(t *testing.T) {
	who, err := auth.New(auth.Options{Insecure: true, Listeners: []string{"127.0.0.1:8080"}})
	if err != nil {
		t.Fatal(err)
	}
	defer who.Close()
	s := newServer(t, func(o *Options) { o.Auth, o.LocalOnly = who, true })
	for host, want := range map[string]int{"localhost:8080": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.example": 403, "": 403} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, Root+"/rules", nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		s.service.Handler().ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%q: %d %s", host, recorder.Code, recorder.Body)
		}
	}
}

func TestServerWithoutRuleStore(t *testing.T) {
	s := newServer(t, withoutStore)
	if got := s.send(http.MethodPost, Root+"/rules", "operator", validRule); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "database.path") {
		t.Errorf("%d %s", got.status, got.body)
	}
	for path, want := range map[string]int{"/rules": 200, "/rules/" + fileRuleID: 200, "/rules/" + missingID: 404, "/audit": 200, "/usage?rule_id=" + fileRuleID: 200} {
		if got := s.send(http.MethodGet, Root+path, "auditor", ""); got.status != want {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if got := s.send(http.MethodDelete, Root+"/rules/"+missingID, "admin", ""); got.status != http.StatusNotFound {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Every code has its two statuses, and its name begins as the contract says.
func TestCodes(t *testing.T) {
	for code, status := range statuses {
		if !strings.HasPrefix(string(code), "SYS_RATELIMIT_") || status.http < 400 || status.grpc == 0 {
			t.Errorf("%s: %+v", code, status)
		}
	}
}

package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirhq/weir/pkg/client"
	"github.com/weirhq/weir/pkg/ratelimit"
)

// keyOf returns what a Guard counts a request by.
func keyOf(t testing.TB, key client.KeyFunc, r *http.Request) string {
	t.Helper()
	check := &checker{}
	guard, err := client.NewGuard(client.GuardOptions{Checker: check, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	guard.Middleware(&handled{}).ServeHTTP(httptest.NewRecorder(), r)
	if len(check.asked) != 1 {
		t.Fatalf("%d checks, want 1", len(check.asked))
	}
	return check.asked[0].Identifier
}

func requestFrom(t testing.TB, peer string, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestByAddress(t *testing.T) {
	const xff, fwd = "X-Forwarded-For", "Forwarded"
	private := []string{"10.0.0.0/8", "2001:db8:ff::/48", "192.0.2.9"}
	for name, test := range map[string]struct {
		options client.AddressOptions
		peer    string
		headers []string
		want    string
	}{
		"no proxy":                         {client.AddressOptions{}, "203.0.113.7:99", []string{xff, "1.1.1.1"}, "203.0.113.7"},
		"untrusted peer":                   {client.AddressOptions{TrustedProxies: private}, "203.0.113.7:99", []string{xff, "1.1.1.1"}, "203.0.113.7"},
		"one proxy":                        {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "1.1.1.1"}, "1.1.1.1"},
		"spoofed before it":                {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "6.6.6.6, 1.1.1.1"}, "1.1.1.1"},
		"spoofed as a proxy":               {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "6.6.6.6, 10.9.9.9, 1.1.1.1"}, "1.1.1.1"},
		"two proxies":                      {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "6.6.6.6, 1.1.1.1, 192.0.2.9"}, "1.1.1.1"},
		"several lines":                    {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "6.6.6.6", xff, "1.1.1.1", xff, "10.2.2.2"}, "1.1.1.1"},
		"no header":                        {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", nil, "10.1.1.1"},
		"all trusted":                      {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "10.3.3.3, 10.2.2.2"}, "10.3.3.3"},
		"garbage from a proxy":             {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "1.1.1.1, unknown"}, "10.1.1.1"},
		"garbage behind a proxy":           {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "garbage, 10.2.2.2"}, "10.2.2.2"},
		"empty elements":                   {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, ",,1.1.1.1, ,"}, "1.1.1.1"},
		"address with a port":              {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "1.1.1.1:5555"}, "1.1.1.1"},
		"mapped address":                   {client.AddressOptions{TrustedProxies: private}, "[::ffff:10.1.1.1]:99", []string{xff, "::ffff:1.1.1.1"}, "1.1.1.1"},
		"mapped network":                   {client.AddressOptions{TrustedProxies: []string{"::ffff:10.0.0.0/104"}}, "10.1.1.1:99", []string{xff, "1.1.1.1"}, "1.1.1.1"},
		"ipv6":                             {client.AddressOptions{}, "[2001:db8:1:2:3:4:5:6]:99", nil, "2001:db8:1:2::/64"},
		"ipv6 of another prefix":           {client.AddressOptions{IPv6Prefix: 48}, "[2001:db8:1:2:3:4:5:6]:99", nil, "2001:db8:1::/48"},
		"ipv6 whole":                       {client.AddressOptions{IPv6Prefix: 128}, "[2001:db8:1:2:3:4:5:6]:99", nil, "2001:db8:1:2:3:4:5:6"},
		"ipv6 with a zone":                 {client.AddressOptions{IPv6Prefix: 128}, "[fe80::1%eth0]:99", nil, "fe80::1"},
		"ipv6 proxy":                       {client.AddressOptions{TrustedProxies: private}, "[2001:db8:ff::1]:99", []string{xff, "[2001:db8:1:2:3::1]:80"}, "2001:db8:1:2::/64"},
		"unix proxy":                       {client.AddressOptions{TrustedProxies: []string{"unix"}}, "@", []string{xff, "1.1.1.1"}, "1.1.1.1"},
		"unix proxy that says nothing":     {client.AddressOptions{TrustedProxies: []string{"unix"}}, "@", nil, "anonymous"},
		"untrusted unix proxy":             {client.AddressOptions{}, "@", []string{xff, "1.1.1.1"}, "anonymous"},
		"other field":                      {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{fwd, "for=1.1.1.1"}, "10.1.1.1"},
		"other field, the other way":       {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{xff, "1.1.1.1"}, "10.1.1.1"},
		"forwarded":                        {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, "for=6.6.6.6, for=1.1.1.1;proto=https;by=10.1.1.1"}, "1.1.1.1"},
		"forwarded, other case":            {client.AddressOptions{TrustedProxies: private, Header: "forwarded"}, "10.1.1.1:99", []string{fwd, "proto=http;FOR=1.1.1.1"}, "1.1.1.1"},
		"forwarded ipv6":                   {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for="[2001:db8:1:2::1]:4711"`}, "2001:db8:1:2::/64"},
		"forwarded, through two":           {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=1.1.1.1;host="a,b;c", for="10.2.2.2"`}, "1.1.1.1"},
		"forwarded, obfuscated":            {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=1.1.1.1, for=_hidden`}, "10.1.1.1"},
		"forwarded without for":            {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=1.1.1.1, proto=https`}, "10.1.1.1"},
		"forwarded, swallowed by a quote":  {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=6.6.6.6;by=", for=1.1.1.1;by="_x"`}, "10.1.1.1"},
		"forwarded, open quote":            {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for="6.6.6.6, for=1.1.1.1`}, "10.1.1.1"},
		"forwarded, open quote in a line":  {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for="6.6.6.6`, fwd, `for=1.1.1.1`}, "1.1.1.1"},
		"forwarded, twice for":             {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=6.6.6.6;for=1.1.1.1`}, "10.1.1.1"},
		"forwarded, escape":                {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for="1.1.1\.1"`}, "1.1.1.1"},
		"forwarded, ends in a backslash":   {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for="1.1.1.1\`}, "10.1.1.1"},
		"forwarded, ends in a semicolon":   {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, `for=1.1.1.1;`}, "1.1.1.1"},
		"forwarded, too long":              {client.AddressOptions{TrustedProxies: private, Header: fwd}, "10.1.1.1:99", []string{fwd, strings.Repeat("for=6.6.6.6,", 1000) + "for=1.1.1.1"}, "10.1.1.1"},
		"more trusted hops than looked at": {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, "6.6.6.6" + strings.Repeat(", 10.4.4.4", 100)}, "10.4.4.4"},
		"a very long element":              {client.AddressOptions{TrustedProxies: private}, "10.1.1.1:99", []string{xff, strings.Repeat("1", 1<<16)}, "10.1.1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			key, err := client.ByAddress(test.options)
			if err != nil {
				t.Fatal(err)
			}
			if got := keyOf(t, key, requestFrom(t, test.peer, test.headers...)); got != test.want {
				t.Errorf("counted by %q, want %q", got, test.want)
			}
		})
	}
}

func TestAddressOptions(t *testing.T) {
	for name, options := range map[string]client.AddressOptions{
		"proxy":         {TrustedProxies: []string{"proxy.example"}},
		"mapped proxy":  {TrustedProxies: []string{"::ffff:0.0.0.0/64"}},
		"header":        {Header: "X-Real-IP"},
		"prefix":        {IPv6Prefix: 129},
		"prefix, below": {IPv6Prefix: -1},
	} {
		if _, err := client.ByAddress(options); !errors.Is(err, client.ErrAddressOptions) {
			t.Errorf("%s: got %v, want ErrAddressOptions", name, err)
		}
	}
}

type subjectKey struct{}

func TestKeys(t *testing.T) {
	address, err := client.ByAddress(client.AddressOptions{})
	if err != nil {
		t.Fatal(err)
	}
	subject := client.ByContext(func(ctx context.Context) (string, bool) {
		subject, ok := ctx.Value(subjectKey{}).(string)
		return subject, ok
	})
	const token = "0a6e1e6fd3ea17ae7e6a2f2b1e1f9d0f"
	known := requestFrom(t, "1.1.1.1:1", "X-Api-Key", " k1 ", "Authorization", "bearer "+token)
	known = known.WithContext(context.WithValue(known.Context(), subjectKey{}, "ann"))
	unknown := requestFrom(t, "1.1.1.1:1")
	for name, test := range map[string]struct {
		key            client.KeyFunc
		known, unknown string
	}{
		"header":   {client.ByHeader("x-api-key"), "k1", "anonymous"},
		"context":  {subject, "ann", "anonymous"},
		"endpoint": {client.ByEndpoint(), "/", "/"},
		"first":    {client.FirstOf(client.Prefixed("key-", client.ByHeader("X-Api-Key")), client.Prefixed("ip-", address)), "key-k1", "ip-1.1.1.1"},
		"none":     {client.FirstOf(subject, client.ByBearer()), "ann", "anonymous"},
	} {
		if got := keyOf(t, test.key, known); got != test.known {
			t.Errorf("%s: counted by %q, want %q", name, got, test.known)
		}
		if got := keyOf(t, test.key, unknown); got != test.unknown {
			t.Errorf("%s: without a key counted by %q, want %q", name, got, test.unknown)
		}
	}
	bearer := keyOf(t, client.ByBearer(), known)
	if len(bearer) != 32 || strings.Contains(bearer, token) {
		t.Errorf("the token is counted by %q, want a hash of it", bearer)
	}
	for name, r := range map[string]*http.Request{
		"two headers":  requestFrom(t, "1.1.1.1:1", "X-Api-Key", "a", "X-Api-Key", "b", "Authorization", "Bearer a", "Authorization", "Bearer b"),
		"empty":        requestFrom(t, "1.1.1.1:1", "X-Api-Key", " ", "Authorization", "Bearer "),
		"other scheme": requestFrom(t, "1.1.1.1:1", "Authorization", "Basic YTpi"),
	} {
		for _, key := range []client.KeyFunc{client.ByHeader("X-Api-Key"), client.ByBearer()} {
			if got := keyOf(t, key, r); got != "anonymous" {
				t.Errorf("%s: counted by %q, want anonymous", name, got)
			}
		}
	}

	plain, secret, other := keyOf(t, client.Hashed(nil, subject), known), keyOf(t, client.Hashed([]byte("s1"), subject), known), keyOf(t, client.Hashed([]byte("s2"), subject), known)
	if plain == secret || secret == other || len(secret) != 32 {
		t.Errorf("hashes %q, %q, %q: want three different ones", plain, secret, other)
	}
	if again := keyOf(t, client.Hashed([]byte("s1"), subject), known); again != secret {
		t.Errorf("hash %q, then %q", secret, again)
	}
}

func TestKeysAreBounded(t *testing.T) {
	long := strings.Repeat("x", 2000)
	first, second := keyOf(t, fixed(long+"a"), requestFrom(t, "1.1.1.1:1")), keyOf(t, fixed(long+"b"), requestFrom(t, "1.1.1.1:1"))
	if len(first) > 1024 || first == second {
		t.Errorf("long keys are counted by %q and %q: want two short ones", first, second)
	}
	if got := keyOf(t, fixed("a\xff"), requestFrom(t, "1.1.1.1:1")); got != "a\uFFFD" {
		t.Errorf("counted by %q, want valid UTF-8", got)
	}
}

// A client that sends more than the API takes is counted all the same, by what patterns still match.
func TestDescribedChecksAreBounded(t *testing.T) {
	check := &checker{}
	long := "/api/" + strings.Repeat("é", 8<<10)
	given := []ratelimit.Descriptor{
		{Entries: []ratelimit.Entry{{Key: "plan", Value: "free"}}},
		{Entries: []ratelimit.Entry{{Key: "plan", Value: "free"}, {Key: "path", Value: long}}},
	}
	guard := newGuard(t, client.GuardOptions{Checker: check, Describe: func(*client.Call) (client.Check, error) {
		return client.Check{Domain: "edge", Descriptors: given, RequestID: long, Subject: long}, nil
	}})
	response, _ := serve(guard, requestFrom(t, "1.1.1.1:1"))
	_ = response.Body.Close()
	got := check.last(t)
	value := got.Descriptors[1].Entries[1].Value
	if len(value) > 8<<10 || !utf8.ValidString(value) || !strings.HasPrefix(value, "/api/éé") {
		t.Errorf("sent %d bytes, from %.20q", len(value), value)
	}
	if len(got.RequestID) > 256 || len(got.Subject) > 1024 || got.Descriptors[0].Entries[0].Value != "free" || got.Descriptors[1].Entries[0].Value != "free" {
		t.Errorf("sent %+v", got)
	}
	if given[1].Entries[1].Value != long {
		t.Error("the caller's descriptors were changed")
	}
}

func TestEndpointsAreCleaned(t *testing.T) {
	for _, path := range []string{"/api/orders", "/api//orders", "/api/./orders/", "/api/x/../orders", "/../api/orders"} {
		r := requestFrom(t, "1.1.1.1:1")
		r.URL.Path = path
		if got := keyOf(t, client.ByEndpoint(), r); got != "/api/orders" {
			t.Errorf("%s is counted by %q", path, got)
		}
	}
}

// Whatever a client writes before what the trusted proxy appends, the proxy's word counts or nothing does.
func FuzzByAddress(f *testing.F) {
	for _, seed := range []string{"", "6.6.6.6", "6.6.6.6, ", `for="`, `for=6.6.6.6;by="`, `\`, `"\"`, ";", "for=", `for="[::1`, "10.0.0.1,10.0.0.1", "\x00"} {
		f.Add(seed)
	}
	keys := map[string]client.KeyFunc{}
	for _, header := range []string{"X-Forwarded-For", "Forwarded"} {
		key, err := client.ByAddress(client.AddressOptions{TrustedProxies: []string{"10.0.0.0/8"}, Header: header})
		if err != nil {
			f.Fatal(err)
		}
		keys[header] = key
	}
	f.Fuzz(func(t *testing.T, sent string) {
		if got := keyOf(t, keys["X-Forwarded-For"], requestFrom(t, "10.1.1.1:1", "X-Forwarded-For", sent+", 1.1.1.1")); got != "1.1.1.1" {
			t.Errorf("counted by %q, want the address that the proxy saw", got)
		}
		for _, headers := range [][]string{{"Forwarded", sent + `, for=1.1.1.1;by="10.1.1.1"`}, {"Forwarded", sent, "Forwarded", "for=1.1.1.1"}} {
			if got := keyOf(t, keys["Forwarded"], requestFrom(t, "10.1.1.1:1", headers...)); got != "1.1.1.1" && got != "10.1.1.1" {
				t.Errorf("counted by %q, want the address that the proxy saw, or the proxy's", got)
			}
		}
		for header, key := range keys {
			got := keyOf(t, key, requestFrom(t, "10.1.1.1:1", header, sent))
			if _, err := netip.ParsePrefix(got); err != nil {
				if _, err := netip.ParseAddr(got); err != nil {
					t.Errorf("counted by %q, which is no address", got)
				}
			}
		}
	})
}

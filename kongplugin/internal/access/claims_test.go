package access

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"
)

func bearer(claims string) string {
	return "Bearer aGVhZA." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
}

func TestClaims(t *testing.T) {
	for name, c := range map[string]struct{ header, claim, want string }{
		"text":                       {bearer(`{"sub":"ann"}`), "sub", "ann"},
		"a large number":             {bearer(`{"id":9007199254740993}`), "id", "9007199254740993"},
		"a boolean":                  {bearer(`{"admin":true}`), "admin", "true"},
		"nested":                     {bearer(`{"a":{"b":{"c":"x"}}}`), "a.b.c", "x"},
		"a name with dots":           {bearer(`{"https://x.org/id":"7"}`), "https://x.org/id", "7"},
		"an object is no value":      {bearer(`{"a":{"b":1}}`), "a", ""},
		"a list is no value":         {bearer(`{"a":["b"]}`), "a", ""},
		"small letters":              {strings.Replace(bearer(`{"sub":"ann"}`), "Bearer", "bearer", 1), "sub", "ann"},
		"padding":                    {"Bearer aGVhZA.eyJzdWIiOiJhIn0=.c2ln", "sub", "a"},
		"another scheme":             {strings.Replace(bearer(`{"sub":"ann"}`), "Bearer", "Basic", 1), "sub", ""},
		"no token":                   {"", "sub", ""},
		"two parts":                  {"Bearer a.b", "sub", ""},
		"no base64":                  {"Bearer a.***.c", "sub", ""},
		"no JSON":                    {"Bearer a." + base64.RawURLEncoding.EncodeToString([]byte("x")) + ".c", "sub", ""},
		"null":                       {bearer(`null`), "sub", ""},
		"an array":                   {bearer(`[1]`), "sub", ""},
		"a claim in the wrong place": {bearer(`{"a":"x"}`), "a.b", ""},
		"far too long":               {bearer(`{"sub":"` + strings.Repeat("x", maxToken) + `"}`), "sub", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := readClaims(c.header).text(c.claim); got != c.want {
				t.Errorf("claim %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzClaims(f *testing.F) {
	f.Add(bearer(`{"sub":"ann","a":{"b":1}}`), "a.b")
	f.Add("Bearer ..", ".")
	f.Fuzz(func(t *testing.T, header, name string) {
		found := readClaims(header)
		if found == nil {
			t.Fatal("nil would be read again")
		}
		_ = found.text(name)
	})
}

func FuzzPrintable(f *testing.F) {
	for _, seed := range []string{"", "ann", "\xff", "a\xc3\x28b", "ü", "\xed\xa0\x80"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := printable(text)
		if !utf8.ValidString(got) {
			t.Fatalf("%q is no UTF-8", got)
		}
		if utf8.ValidString(text) && got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

func TestGRPCMessage(t *testing.T) {
	if got := grpcMessage("50% zu viel für\n"); got != "50%25 zu viel f%C3%BCr%0A" {
		t.Errorf("%q", got)
	}
}

package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// entriesOf reads "key=value,key=value".
func entriesOf(text string) []ratelimit.Entry {
	var entries []ratelimit.Entry
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		entries = append(entries, ratelimit.Entry{Key: key, Value: value})
	}
	return entries
}

// parsed compiles the text of one file.
func parsed(t *testing.T, text string) *Table {
	t.Helper()
	table, err := compileFiles([]file{{path: "test.yaml", data: []byte(text)}}, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// TestMatch looks up descriptors; the path of the rule tells which one it was, "" that there was none.
func TestMatch(t *testing.T) {
	for name, test := range map[string]struct {
		rules string
		want  map[string]string
	}{
		"exact, then pattern, then bare": {
			rules: `
  - {key: user, action: deny}
  - {key: user, value: "b*", action: deny}
  - {key: user, value: bob, action: deny}`,
			want: map[string]string{"user=bob": "user=bob", "user=bill": "user=b*", "user=alice": "user", "user=": "user", "usher=bob": ""},
		},
		"patterns in the order of the file, not the longest first": {
			rules: `
  - {key: path, match: {prefix: /a}, action: deny}
  - {key: path, match: {prefix: /a/b}, action: deny, id: hidden}
  - {key: path, match: {suffix: .png}, action: deny}
  - {key: path, value: "*", action: deny}`,
			want: map[string]string{"path=/a/b": "path~prefix:/a", "path=/a.png": "path~prefix:/a", "path=/b.png": "path~suffix:.png", "path=": "path=*"},
		},
		"priority before the order of the file": {
			rules: `
  - {key: ip, match: {cidr: 10.0.0.0/8}, action: deny}
  - {key: ip, match: {cidr: 10.1.0.0/16}, action: deny, priority: 1}
  - {key: ip, value: "10.*", action: deny, priority: 2}
  - {key: ip, match: {regex: '.*\.5'}, action: deny, priority: 3}
  - {key: ip, value: "*", action: deny, priority: -1}`,
			want: map[string]string{"ip=10.1.1.5": `ip~regex:.*\.5`, "ip=10.1.1.1": "ip=10.*", "ip=11.1.1.1": "ip=*"},
		},
		"CIDR blocks": {
			rules: `
  - {key: ip, match: {cidr: 10.1.0.0/16}, action: deny}
  - {key: ip, match: {cidr: 10.0.0.0/8}, action: deny}
  - {key: ip, match: {cidr: 10.1.2.3/32}, action: deny}
  - {key: ip, match: {cidr: 255.255.255.255/32}, action: deny}
  - {key: ip, match: {cidr: "2001:db8::/32"}, action: deny}
  - {key: ip, match: {cidr: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"}, action: deny}
  - {key: all, match: {cidr: 0.0.0.0/0}, action: deny}`,
			want: map[string]string{
				"ip=10.1.2.3": "ip~cidr:10.1.0.0/16", "ip=10.2.0.0": "ip~cidr:10.0.0.0/8", "ip=11.0.0.0": "", "ip=9.255.255.255": "",
				"ip=255.255.255.255": "ip~cidr:255.255.255.255/32", "ip=255.255.255.254": "",
				"ip=::ffff:10.1.0.1": "ip~cidr:10.1.0.0/16", "ip=::ffff:a01:1": "ip~cidr:10.1.0.0/16",
				"ip=2001:db8::1": "ip~cidr:2001:db8::/32", "ip=2001:DB8::1%eth0": "ip~cidr:2001:db8::/32", "ip=2001:db9::": "",
				"ip=ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": "ip~cidr:ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128",
				"ip=10.1": "", "ip=10.1.0.1:80": "", "ip= 10.1.0.1": "", "ip=10.1.0.1 ": "", "ip=bob": "", "ip=": "", "ip=10.01.0.1": "",
				"all=255.255.255.255": "all~cidr:0.0.0.0/0", "all=0.0.0.0": "all~cidr:0.0.0.0/0", "all=::": "",
			},
		},
		"globs go by segments": {
			rules: `
  - {key: p, match: {glob: /api/*/orders}, action: deny}
  - {key: p, match: {glob: /api/**/items}, action: deny}
  - {key: p, match: {glob: /static/**}, action: deny}
  - {key: p, match: {glob: "/v*/x-*-y"}, action: deny}
  - {key: p, match: {glob: "**/deep"}, action: deny}`,
			want: map[string]string{
				"p=/api/v1/orders": "p~glob:/api/*/orders", "p=/api//orders": "p~glob:/api/*/orders", "p=/api/v1/v2/orders": "", "p=/api/orders": "",
				"p=/api/items": "p~glob:/api/**/items", "p=/api/a/b/c/items": "p~glob:/api/**/items", "p=/api/a/itemsx": "", "p=/apix/items": "",
				"p=/static": "p~glob:/static/**", "p=/static/": "p~glob:/static/**", "p=/static/a/b": "p~glob:/static/**", "p=/staticx": "",
				"p=/v1/x-a-b-y": "p~glob:/v*/x-*-y", "p=/v/x--y": "p~glob:/v*/x-*-y", "p=/v1/x-y": "", "p=/v1/2/x--y": "",
				"p=deep": "p~glob:**/deep", "p=/deep": "p~glob:**/deep", "p=a/b/deep": "p~glob:**/deep", "p=a/deeper": "", "p=adeep": "",
			},
		},
		"regexes match the whole value": {
			rules: `
  - {key: u, match: {regex: "user-[0-9]+"}, action: deny}
  - {key: u, match: {regex: "a|b"}, action: deny}
  - {key: u, match: {regex: "(?i)admin"}, action: deny}
  - {key: u, match: {regex: "^/x/.*$"}, action: deny}`,
			want: map[string]string{
				"u=user-42": "u~regex:user-[0-9]+", "u=xuser-42": "", "u=user-42x": "", "u=user-": "", "u=a": "u~regex:a%7Cb", "u=ab": "",
				"u=ADMIN": "u~regex:(?i)admin", "u=admin": "u~regex:(?i)admin", "u=/x/y": "u~regex:^/x/.*$",
			},
		},
		"wildcards with several stars": {
			rules: `
  - {key: v, value: "a*b*c", action: deny}
  - {key: v, value: "*mid*", action: deny}`,
			want: map[string]string{"v=abc": "v=a*b*c", "v=axxbxxc": "v=a*b*c", "v=ac": "", "v=acb": "", "v=xxmidxx": "v=*mid*", "v=a*b*c": "v=a*b*c"},
		},
		"wildcards in keys stand among the patterns": {
			rules: `
  - {key: "x-*", action: deny}
  - {key: x-user, action: deny}
  - {key: x-user, value: bob, action: deny}
  - {key: "y-*", value: "b*", action: deny}
  - {key: "*-z", value: exactly, action: deny}
  - {key: "i-*", match: {cidr: 10.0.0.0/8}, action: deny}
  - {key: "p-*", match: {prefix: /a}, action: deny}`,
			want: map[string]string{
				"x-user=bob": "x-user=bob", "x-user=alice": "x-*", "x-=": "x-*", "y-a=bob": "y-*=b*", "y-a=alice": "", "a-z=exactly": "*-z=exactly", "a-z=other": "",
				"i-p=10.1.1.1": "i-*~cidr:10.0.0.0/8", "i-p=11.1.1.1": "", "p-q=/ab": "p-*~prefix:/a", "p-q=b": "",
			},
		},
		"limits apply at exactly their depth": {
			rules: `
  - key: plan
    value: free
    descriptors:
      - {key: user, action: deny}
  - key: tenant
    action: deny
    descriptors:
      - key: user
        descriptors:
          - {key: path, action: deny}`,
			want: map[string]string{
				"plan=free": "", "plan=free,user=bob": "plan=free|user", "plan=free,user=bob,path=/": "", "plan=pro,user=bob": "", "user=bob": "",
				"tenant=a": "tenant", "tenant=a,user=bob": "", "tenant=a,user=bob,path=/": "tenant|user|path", "": "",
			},
		},
		"what wins at a level stays, even if nothing fits below": {
			rules: `
  - key: plan
    value: free
    descriptors: [{key: user, value: bob, action: deny}]
  - key: plan
    value: "*"
    descriptors: [{key: user, action: deny}]
  - key: plan
    descriptors: [{key: user, action: deny, id: hidden}]`,
			want: map[string]string{"plan=free,user=bob": "plan=free|user=bob", "plan=free,user=alice": "", "plan=pro,user=alice": "plan=*|user"},
		},
		"a definition without a limit hides those after it": {
			rules: `
  - {key: user, value: vip}
  - {key: user, value: "v*", action: deny}
  - {key: user, action: deny}`,
			want: map[string]string{"user=vip": "", "user=vap": "user=v*", "user=bob": "user"},
		},
		"disabled is as if it were not there, and all below it": {
			rules: `
  - {key: user, value: bob, action: deny, enabled: false}
  - {key: user, value: "b*", action: deny, enabled: false}
  - {key: user, action: deny}
  - key: plan
    value: free
    enabled: false
    descriptors: [{key: user, action: deny}]
  - key: plan
    descriptors: [{key: user, action: deny}]`,
			want: map[string]string{"user=bob": "user", "plan=free,user=bob": "plan|user"},
		},
		"values that are not UTF-8": {
			rules: `
  - {key: user, value: "a*", action: deny}
  - {key: user, match: {regex: "\uFFFD.*"}, action: deny}
  - {key: user, match: {glob: "*/x"}, action: deny}`,
			want: map[string]string{"user=a\xff": "user=a*", "user=\xffb": "user~regex:�.*", "user=\xfe\xff/x": "user~regex:�.*", "user=b\xff/x": "user~glob:*/x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := parsed(t, "domain: edge\ndescriptors:"+test.rules+"\n")
			for descriptor, want := range test.want {
				entries := entriesOf(descriptor)
				m := table.Match("edge", entries)
				got := ""
				if m.Rule != nil {
					got = m.Rule.Path
				}
				if got != want || !m.DomainKnown || m.Default {
					t.Errorf("%s matches %q, not %q\n%v", descriptor, got, want, table.Explain("edge", entries))
				}
				if m := table.Match("other", entries); m != (Match{}) {
					t.Errorf("an unknown domain matches %v", m)
				}
			}
		})
	}
}

func TestMatchDefault(t *testing.T) {
	table := parsed(t, `
domain: edge
default: {name: rest, limits: [{rate: 5/s}]}
descriptors:
  - {key: user, action: deny}
  - {key: plan, descriptors: [{key: user, action: deny}]}
---
domain: off
default: {enabled: false, action: deny}
descriptors: [{key: default, action: deny}]
`)
	for _, descriptor := range []string{"path=/", "plan=free", "user=bob,path=/", ""} {
		m := table.Match("edge", entriesOf(descriptor))
		if m.Rule == nil || m.Rule.Name != "rest" || m.Rule.Path != "default" || !m.Default || !m.DomainKnown || len(m.Rule.Match) != 0 {
			t.Errorf("%q matches %+v", descriptor, m)
		}
	}
	if m := table.Match("edge", entriesOf("user=bob")); m.Default {
		t.Errorf("got %+v", m)
	}
	if m := table.Match("off", entriesOf("path=/")); m.Rule != nil || !m.DomainKnown || m.Default {
		t.Errorf("a disabled default applies: %+v", m)
	}
	ids := map[string]bool{}
	for _, r := range table.Rules() {
		if ids[r.ID] {
			t.Errorf("id of %s twice", r.Path)
		}
		ids[r.ID] = true
	}
}

// TestMatchAllocatesNothing looks up values as clients may send them.
func TestMatchAllocatesNothing(t *testing.T) {
	table := parsed(t, `
domain: edge
default: {action: deny}
descriptors:
  - {key: "k*", value: "*a*b*", action: deny}
  - {key: v, value: exact, action: deny}
  - {key: v, match: {cidr: 10.0.0.0/8}, action: deny}
  - {key: v, match: {cidr: "2001:db8::/32"}, action: deny}
  - {key: v, match: {prefix: /api/}, action: deny}
  - {key: v, match: {suffix: .org}, action: deny}
  - {key: v, match: {glob: "/**/a/*/b*c"}, action: deny}
  - {key: v, match: {regex: "u[0-9]+"}, action: deny}
  - {key: v, value: "*x*y*", action: deny}
  - {key: p, descriptors: [{key: v, action: deny}]}
`)
	for _, descriptor := range []string{
		"v=exact", "v=10.1.2.3", "v=2001:db8::1%zone", "v=/api/x", "v=example.org", "v=/1/2/3/a/4/bcc", "v=u42", "v=u42z",
		"v=\xff\xfe", "v=" + strings.Repeat("/", 2000), "v=" + strings.Repeat("xy", 2000), "k1=aabb", "p=1,v=2", "nothing=at all", "",
	} {
		entries := entriesOf(descriptor)
		if n := testing.AllocsPerRun(100, func() { table.Match("edge", entries) }); n != 0 {
			t.Errorf("%.40q: %v allocations", descriptor, n)
		}
	}
	table.Match("unknown", nil)
}

// TestMatchHostileValues takes values that would keep a matcher busy that goes back.
func TestMatchHostileValues(t *testing.T) {
	stars := strings.Repeat("a*", 500) + "b"
	table := compiled(t,
		Definition{Key: "wildcard", Value: stars, Action: ratelimit.ActionDeny},
		Definition{Key: "glob", Match: &Pattern{ratelimit.MatchGlob, strings.Repeat("**/a/", 200) + "b"}, Action: ratelimit.ActionDeny},
		Definition{Key: "glob2", Match: &Pattern{ratelimit.MatchGlob, "/" + strings.Repeat("*a", 500) + "*b"}, Action: ratelimit.ActionDeny},
		Definition{Key: "regex", Match: &Pattern{ratelimit.MatchRegex, "(a|aa)+(a|aa)+(a|aa)+b"}, Action: ratelimit.ActionDeny},
	)
	// Any of these would take years with a matcher that goes back; the test's own time limit is the bound.
	for _, value := range []string{strings.Repeat("a", 40_000), strings.Repeat("a/", 20_000), "/" + strings.Repeat("a", 40_000)} {
		for _, key := range []string{"wildcard", "glob", "glob2", "regex"} {
			if m := table.Match("edge", []ratelimit.Entry{{Key: key, Value: value}}); m.Rule != nil {
				t.Errorf("%s matches", key)
			}
		}
	}
}

func TestDisabledRulesAreListed(t *testing.T) {
	table := parsed(t, `
domain: edge
descriptors:
  - key: plan
    enabled: false
    action: deny
    descriptors: [{key: user, action: deny}]
  - {key: user, action: deny}
`)
	if table.Len() != 3 {
		t.Errorf("%d rules", table.Len())
	}
	for _, r := range table.Rules() {
		if want := strings.HasPrefix(r.Path, "plan"); r.Disabled != want {
			t.Errorf("%s: disabled is %v", r.Path, r.Disabled)
		}
	}
}

func TestManyPatternsInNestedOrder(t *testing.T) {
	// Blocks and prefixes inside each other, the widest first with the lowest priority.
	var definitions []Definition
	for bits := 8; bits <= 32; bits++ {
		definitions = append(definitions, Definition{
			Key: "ip", Match: &Pattern{ratelimit.MatchCIDR, fmt.Sprintf("10.0.0.0/%d", bits)}, Priority: bits, Action: ratelimit.ActionDeny,
		})
	}
	table := compiled(t, definitions...)
	for bits := 8; bits < 32; bits++ {
		address := uint32(10<<24) | 1<<(31-bits) // in the block of this many bits, and in none with more
		value := fmt.Sprintf("%d.%d.%d.%d", address>>24, address>>16&255, address>>8&255, address&255)
		m := table.Match("edge", []ratelimit.Entry{{Key: "ip", Value: value}})
		if want := fmt.Sprintf("ip~cidr:10.0.0.0/%d", bits); m.Rule == nil || m.Rule.Path != want {
			t.Errorf("%s: got %+v, want %s", value, m.Rule, want)
		}
	}
}

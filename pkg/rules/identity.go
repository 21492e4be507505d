package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/weirhq/weir/pkg/ratelimit"
)

// namespace is what the UUIDs of all rules are derived from. It never changes: stored references depend on it.
var namespace = uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://github.com/weirhq/weir/rules"))

// defaultPath is the path of a domain's default, which stands at no level.
const defaultPath = "default"

// ruleID is the ID of a rule that has none of its own. The path of a domain's default is empty here, so that it differs
// from a descriptor whose key is "default".
func ruleID(domain, path string) string {
	return uuid.NewSHA1(namespace, []byte(domain+"\x00"+path)).String()
}

var kindNames = map[ratelimit.MatchKind]string{
	ratelimit.MatchPrefix: "prefix",
	ratelimit.MatchSuffix: "suffix",
	ratelimit.MatchGlob:   "glob",
	ratelimit.MatchRegex:  "regex",
	ratelimit.MatchCIDR:   "cidr",
}

// pathOf writes the levels of a rule: "plan=free|user", "remote_address~cidr:10.0.0.0/8". Different levels never give
// one path, and a path is printable: separators and what does not print are percent-encoded.
func pathOf(levels []ratelimit.EntryMatch) string {
	var b strings.Builder
	for i, m := range levels {
		if i > 0 {
			b.WriteByte('|')
		}
		escape(&b, m.Key, "%|=~")
		switch m.Kind {
		case ratelimit.MatchAny:
			continue
		case ratelimit.MatchExact, ratelimit.MatchWildcard:
			b.WriteByte('=')
		default:
			b.WriteByte('~')
			b.WriteString(kindNames[m.Kind])
			b.WriteByte(':')
		}
		escape(&b, m.Pattern, "%|")
	}
	return b.String()
}

func escape(b *strings.Builder, text, separators string) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if (r == utf8.RuneError && size == 1) || !unicode.IsPrint(r) || strings.ContainsRune(separators, r) {
			for i := range size {
				fmt.Fprintf(b, "%%%02X", text[i])
			}
		} else {
			b.WriteString(text[:size])
		}
		text = text[size:]
	}
}

// digest hashes what definitions say. Every field is written with its length, so that no two sets look alike.
type digest struct {
	hash hash.Hash
	buf  []byte
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) text(texts ...string) {
	for _, s := range texts {
		d.buf = binary.AppendUvarint(d.buf, uint64(len(s)))
		d.buf = append(d.buf, s...)
	}
	d.flush()
}

func (d *digest) number(numbers ...int64) {
	for _, n := range numbers {
		d.buf = binary.AppendVarint(d.buf, n)
	}
	d.flush()
}

func (d *digest) flag(flags ...bool) {
	for _, f := range flags {
		if f {
			d.buf = append(d.buf, 1)
		} else {
			d.buf = append(d.buf, 0)
		}
	}
	d.flush()
}

func (d *digest) flush() {
	d.hash.Write(d.buf)
	d.buf = d.buf[:0]
}

// place writes one level of a definition, which counts even where no rule stands: it hides the definitions after it.
func (d *digest) place(m *ratelimit.EntryMatch, priority int, disabled bool) {
	d.text(m.Key, m.Pattern)
	d.number(int64(m.Kind), int64(priority))
	d.flag(m.Shared, m.ValueToMetric, disabled)
}

func (d *digest) rule(r *ratelimit.Rule) {
	d.text(r.ID, r.Name, r.Domain, r.Path)
	d.number(int64(r.Action), int64(r.OnFailure), int64(len(r.Limits)))
	d.flag(r.Unlimited, r.Shadow, r.QuotaMode, r.Disabled, r.DetailedMetric)
	for i := range r.Limits {
		l := &r.Limits[i]
		d.text(l.Name)
		if l.Location != nil {
			d.text(l.Location.String())
		}
		d.number(int64(l.Algorithm), l.Count, l.Burst, int64(l.Window), int64(l.Calendar), int64(l.Kind), l.Lease.Max, int64(l.Lease.TTL))
	}
	d.number(int64(len(r.Replaces)))
	d.text(r.Replaces...)
	if len(r.Metadata) > 0 {
		d.text(fmt.Sprint(r.Metadata)) // maps print in the order of their keys
	}
}

func (d *digest) sum() (sum [sha256.Size]byte) {
	d.hash.Sum(sum[:0])
	return sum
}

// hexadecimal is the sum in hexadecimal.
func (d *digest) hexadecimal() string { return hex.EncodeToString(d.hash.Sum(nil)) }

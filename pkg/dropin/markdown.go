package dropin

import (
	"fmt"
	"strings"
)

// Markdown returns a table of every variable, for docs/envoyproxy-ratelimit.md, which tools/docs writes.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| variable | default | what becomes of it |\n| --- | --- | --- |\n")
	for i := range table {
		v := &table[i]
		value := ""
		if v.Default != "" {
			value = "`" + v.Default + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.Name, value, v.Doc)
	}
	return b.String()
}

// MarkdownDifferences returns a list of everything that people may notice after the swap.
func MarkdownDifferences() string {
	var b strings.Builder
	for _, d := range differences {
		fmt.Fprintf(&b, "- %s\n", d.text)
	}
	return b.String()
}

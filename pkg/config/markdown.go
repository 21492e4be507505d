package config

import (
	"fmt"
	"strings"
)

// Markdown returns a table of every setting, for the README, which tools/docs writes.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| setting | default | environment | what it is for |\n| --- | --- | --- | --- |\n")
	for _, f := range Fields() {
		value := ""
		if f.Default != "" {
			value = "`" + f.Default + "`"
		}
		doc := f.Doc
		if f.Range != "" {
			doc += " (" + f.Range + ")"
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", f.Path, value, f.Env, strings.ReplaceAll(doc, "|", `\|`))
	}
	return b.String()
}

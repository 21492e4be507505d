package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/auth"
	"github.com/weirhq/weir/pkg/k1s0"
	"github.com/weirhq/weir/test/servers"
)

// The commands of docs/api.md, as they are but for the ports and the token, in their order.
func TestAPICommands(t *testing.T) {
	root := servers.Root(t)
	token, hash := auth.NewToken()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "tokens: [{subject: me, role: sys_admin, hash: %q}]\n", hash), 0o600); err != nil {
		t.Fatal(err)
	}
	weir := servers.Weir(t, servers.WeirOptions{
		RulesPath: filepath.Join(root, "config", "rules"), Set: map[string]string{"auth.tokens_file": file},
	})
	replace := strings.NewReplacer(
		"localhost:50051", weir.GRPC(), "http://localhost:8080", weir.HTTP(),
		"grpcurl ", "go tool -modfile=tools/grpcurl/go.mod grpcurl ", "curl -s", "curl -sS --fail-with-body",
	)
	text := read(t, filepath.Join("docs", "api.md"))
	ran := 0
	for _, block := range blocks(text, "sh") {
		script := replace.Replace(block)
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		shell.Dir, shell.Env = root, append(os.Environ(), "TOKEN="+token)
		output, err := shell.CombinedOutput()
		if err != nil {
			t.Errorf("%s\nfailed: %v\n%s", block, err, output)
		}
		ran += strings.Count(block, "curl ")
		if strings.Contains(block, "/usage") && !strings.Contains(string(output), `"rule_name":"user-vip-*"`) {
			t.Errorf("%s\nprinted\n%s", block, output)
		}
	}
	if ran < 10 {
		t.Errorf("only %d commands were run", ran)
	}
	if got := weir.Metric(`weir_rules_stored{state="merged"}`); got != 2 {
		t.Errorf("%v rules are left of those that the commands made, want 2", got)
	}
}

// docs/api.md names every code with its statuses.
func TestAPICodes(t *testing.T) {
	text := read(t, filepath.Join("docs", "api.md"))
	rows := regexp.MustCompile("(?m)^\\| `(SYS_RATELIMIT_[A-Z_]+)` \\| (\\d+) \\| ([A-Z_]+) \\|").FindAllStringSubmatch(text, -1)
	found := map[k1s0.Code]string{}
	for _, row := range rows {
		found[k1s0.Code(row[1])] = row[2] + " " + row[3]
	}
	for _, code := range k1s0.Codes() {
		want := fmt.Sprint(code.HTTP(), " ", screaming(code.GRPC().String()))
		if found[code] != want {
			t.Errorf("%s: %q, want %q", code, found[code], want)
		}
	}
	if len(found) != len(k1s0.Codes()) {
		t.Errorf("%d codes, want %d", len(found), len(k1s0.Codes()))
	}
}

// screaming writes a name such as NotFound as NOT_FOUND.
func screaming(name string) string {
	return strings.ToUpper(regexp.MustCompile("([a-z])([A-Z])").ReplaceAllString(name, "${1}_$2"))
}

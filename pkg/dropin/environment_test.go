package dropin_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/dropin"
)

func TestReadEnvironment(t *testing.T) {
	e, err := dropin.ReadEnvironment([]byte("# comment\n\n A=1 \r\nexport B=\"two words\"\nC='x'\nD=\nE=a=b#c\nF=\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A=1", "B=two words", "C=x", "D=", "E=a=b#c", `F="`}; !slices.Equal(e.Variables, want) {
		t.Errorf("%q, want %q", e.Variables, want)
	}
	for text, line := range map[string]string{"A=1\nB": "line 2 ", "=1": "line 1 ", "A B=1": "line 1 ", "\n\n- name: A": "line 3 "} {
		if _, err := dropin.ReadEnvironment([]byte(text)); !errors.Is(err, dropin.ErrEnvironment) || !strings.Contains(err.Error(), line) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

const pod = `kind: Pod
spec:
  containers:
    - name: only
      env:
        - {name: A, value: "1"}
        - {name: B, value: $(A)-$(NONE)-$$(A)}
        - {name: C, valueFrom: {configMapKeyRef: {name: there, key: c}}}
        - {name: D, valueFrom: {configMapKeyRef: {name: there, key: none}}}
        - {name: E, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
---
kind: ConfigMap
metadata: {name: there}
data: {c: three}
`

func TestReadDeployment(t *testing.T) {
	e, err := dropin.ReadDeployment([]byte(pod), "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"A=1", "B=1-$(NONE)-$(A)", "C=three"}; !slices.Equal(e.Variables, want) {
		t.Errorf("%q, want %q", e.Variables, want)
	}
	var unknown []string
	for _, notice := range e.Unknown {
		unknown = append(unknown, notice.Variable+" "+notice.Text)
	}
	want := []string{"D comes from key none of the ConfigMap there, which is not in this file: add it", "E comes from resourceFieldRef of the Pod"}
	if !slices.Equal(unknown, want) {
		t.Errorf("%q, want %q", unknown, want)
	}
}

// Of several containers it is the one that is called ratelimit, by its command or image, or that was named.
func TestChosenContainer(t *testing.T) {
	const two = "kind: StatefulSet\nspec: {template: {spec: {containers: [{name: a, image: IMAGE, env: [{name: WHO, value: a}]}, {name: b, env: [{name: WHO, value: b}]}]}}}\n"
	for _, c := range []struct{ image, name, want string }{
		{"envoyproxy/ratelimit:1", "", "WHO=a"},
		{"envoyproxy/ratelimit:1", "b", "WHO=b"},
		{"other", "a", "WHO=a"},
		{"other", "", ""},
		{"other", "c", ""},
	} {
		e, err := dropin.ReadDeployment([]byte(strings.Replace(two, "IMAGE", c.image, 1)), c.name)
		if got := strings.Join(e.Variables, ","); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%+v: %q, %v", c, got, err)
		}
	}
}

func TestStrangers(t *testing.T) {
	strangers := dropin.Strangers([]string{"REDISS_URL=x", "REDIS_URL=x", "WEIR_X=1", "GOMAXPROCS=2", "REDIS_STARTUP_RETRIES=1", "OTEL_X=y", "DOG_STATSD_MOGRIFIER_A_NAME=b"})
	if len(strangers) != 1 || strangers[0].Variable != "REDISS_URL" {
		t.Errorf("%v", strangers)
	}
}

// Differences that follow from variables are told only then.
func TestDifferences(t *testing.T) {
	has := func(text string, environ ...string) bool {
		return slices.ContainsFunc(dropin.Differences(environ), func(d string) bool { return strings.Contains(d, text) })
	}
	if !has("process's memory") || has("process's memory", "REDIS_URL=/x") || !has("REDIS_TIMEOUT", "REDIS_URL=/x") {
		t.Error("the differences do not follow REDIS_URL")
	}
	if has("@timestamp") || !has("@timestamp", "LOG_FORMAT=json") {
		t.Error("the differences do not follow LOG_FORMAT")
	}
	if has("rule file", "CONFIG_TYPE=GRPC_XDS_SOTW") || !has("rule file") {
		t.Error("the differences do not follow CONFIG_TYPE")
	}
}

package dropin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirhq/weir/pkg/config"
	"github.com/weirhq/weir/pkg/dropin"
)

// Whatever variables hold, it is a configuration or problems, each of which says where it is.
func FuzzTranslate(f *testing.F) {
	for _, c := range cases {
		f.Add(strings.Join(c.environ(), "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		environ := strings.Split(text, "\n")
		for _, variable := range environ {
			if strings.HasPrefix(variable, config.EnvPrefix) {
				return // config reads weir's own variables
			}
		}
		translated, err := dropin.Translate(environ, dropin.Options{})
		if err == nil {
			_, err = config.Load(config.Source{Base: translated.Settings})
		}
		var problems config.Problems
		if err == nil {
			if _, _, err := config.Write(translated.Settings); err != nil {
				t.Errorf("it cannot be written: %v", err)
			}
			return
		}
		if !errors.As(err, &problems) || len(problems) == 0 {
			t.Fatalf("the error is %v", err)
		}
		for _, problem := range problems {
			if problem.Where == "" || problem.Where == dropin.Mode || problem.Message == "" {
				t.Errorf("a problem of no variable: %q", problem)
			}
		}
	})
}

// Whatever stands in a file, it is an environment or an error.
func FuzzReadDeployment(f *testing.F) {
	f.Add(pod, "")
	f.Add("kind: Pod\nspec: {containers: [{name: a, envFrom: [{secretRef: {name: s}}, {prefix: P_, configMapRef: {name: m}}]}]}\n---\nkind: ConfigMap\nmetadata: {name: m}\ndata: {x: y}\n", "a")
	f.Add("A=1\nexport B='2'\n", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, read := range []func() (dropin.Environment, error){
			func() (dropin.Environment, error) { return dropin.ReadDeployment([]byte(text), name) },
			func() (dropin.Environment, error) { return dropin.ReadEnvironment([]byte(text)) },
		} {
			e, err := read()
			if err != nil {
				if !errors.Is(err, dropin.ErrEnvironment) {
					t.Errorf("the error is %v", err)
				}
				continue
			}
			_, _ = dropin.Translate(e.Variables, dropin.Options{})
			dropin.Strangers(e.Variables)
		}
	})
}

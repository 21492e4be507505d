package dropin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// ErrEnvironment is wrapped by the errors of ReadEnvironment and ReadDeployment.
var ErrEnvironment = errors.New("no environment")

// Environment is what a container is started with.
type Environment struct {
	// Variables are NAME=VALUE, in their order.
	Variables []string
	// Unknown are variables whose value stands elsewhere, by their name, with where that is.
	Unknown []Notice
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// ReadEnvironment reads lines of NAME=VALUE. Empty lines and those that begin with # are left out, and so are an export before the
// name and quotes around the value. The error names the line.
func ReadEnvironment(text []byte) (Environment, error) {
	var e Environment
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(strings.TrimSuffix(line, "\r"))
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		name = strings.TrimSpace(name)
		if !ok || !variableName.MatchString(name) {
			return Environment{}, fmt.Errorf("%w: line %d is not NAME=VALUE", ErrEnvironment, i+1)
		}
		e.Variables = append(e.Variables, name+"="+unquoted(strings.TrimSpace(value)))
	}
	return e, nil
}

func unquoted(value string) string {
	if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		return value[1 : len(value)-1]
	}
	return value
}

// The part of Kubernetes' manifests that says what containers are started with.
type (
	manifest struct {
		Kind     string                `yaml:"kind"`
		Metadata struct{ Name string } `yaml:"metadata"`
		Data     map[string]string     `yaml:"data"` // of a ConfigMap
		Spec     struct {
			podSpec  `yaml:",inline"`
			Template struct {
				Spec podSpec `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	podSpec struct {
		Containers []container `yaml:"containers"`
	}
	container struct {
		Name    string      `yaml:"name"`
		Image   string      `yaml:"image"`
		Command []string    `yaml:"command"`
		Env     []envVar    `yaml:"env"`
		EnvFrom []envSource `yaml:"envFrom"`
	}
	envVar struct {
		Name      string         `yaml:"name"`
		Value     string         `yaml:"value"`
		ValueFrom map[string]ref `yaml:"valueFrom"`
	}
	envSource struct {
		Prefix       string `yaml:"prefix"`
		ConfigMapRef *ref   `yaml:"configMapRef"`
		SecretRef    *ref   `yaml:"secretRef"`
	}
	ref struct {
		Name      string `yaml:"name"`
		Key       string `yaml:"key"`
		FieldPath string `yaml:"fieldPath"`
		Resource  string `yaml:"resource"`
	}
)

// workloads are the kinds that hold containers.
var workloads = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Pod"}

// ReadDeployment reads the environment of a container from Kubernetes' manifests: a Deployment, or another workload. Values of
// ConfigMaps that stand in the same text are filled in; what comes from Secrets and elsewhere is Unknown. With an empty name it is
// the one container that there is, or the one whose command or image is called ratelimit.
func ReadDeployment(text []byte, name string) (Environment, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var all []container
	maps := map[string]map[string]string{}
	for {
		var m manifest
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return Environment{}, fmt.Errorf("%w: the manifests cannot be read: %w", ErrEnvironment, err)
		}
		switch {
		case m.Kind == "ConfigMap":
			maps[m.Metadata.Name] = m.Data
		case slices.Contains(workloads, m.Kind):
			all = append(append(all, m.Spec.Containers...), m.Spec.Template.Spec.Containers...)
		}
	}
	chosen, err := choose(all, name)
	if err != nil {
		return Environment{}, err
	}
	return chosen.environment(maps), nil
}

func choose(all []container, name string) (*container, error) {
	var names []string
	var likely []*container
	for i := range all {
		c := &all[i]
		if name != "" && c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
		if strings.Contains(c.Image, "ratelimit") || len(c.Command) > 0 && strings.HasSuffix(c.Command[0], "ratelimit") {
			likely = append(likely, c)
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%w: there is no workload with containers: give the manifest of the Deployment", ErrEnvironment)
	case name != "":
		return nil, fmt.Errorf("%w: no container is called %q: there are %s", ErrEnvironment, name, strings.Join(names, ", "))
	case len(likely) == 1:
		return likely[0], nil
	case len(all) == 1:
		return &all[0], nil
	default:
		return nil, fmt.Errorf("%w: there are several containers, %s: name the one of envoyproxy/ratelimit with --container", ErrEnvironment, strings.Join(names, ", "))
	}
}

func (c *container) environment(maps map[string]map[string]string) Environment {
	var e Environment
	known := map[string]string{}
	add := func(name, value string) {
		known[name] = value
		e.Variables = append(e.Variables, name+"="+value)
	}
	unknown := func(name, format string, args ...any) {
		e.Unknown = append(e.Unknown, Notice{Variable: name, Text: fmt.Sprintf(format, args...)})
	}
	for _, source := range c.EnvFrom {
		switch {
		case source.ConfigMapRef != nil && maps[source.ConfigMapRef.Name] != nil:
			data := maps[source.ConfigMapRef.Name]
			for _, key := range sortedKeys(data) {
				add(source.Prefix+key, data[key])
			}
		case source.ConfigMapRef != nil:
			unknown("envFrom", "comes from the ConfigMap %s, which is not in this file: add it", source.ConfigMapRef.Name)
		case source.SecretRef != nil:
			unknown("envFrom", "comes from the Secret %s: look there for variables of the table", source.SecretRef.Name)
		}
	}
	for _, variable := range c.Env {
		if len(variable.ValueFrom) == 0 {
			add(variable.Name, expanded(variable.Value, known))
			continue
		}
		for kind, from := range variable.ValueFrom {
			data, there := maps[from.Name]
			value, ok := data[from.Key]
			switch {
			case kind == "configMapKeyRef" && there && ok:
				add(variable.Name, value)
			case kind == "configMapKeyRef":
				unknown(variable.Name, "comes from key %s of the ConfigMap %s, which is not in this file: add it", from.Key, from.Name)
			case kind == "secretKeyRef":
				unknown(variable.Name, "comes from key %s of the Secret %s", from.Key, from.Name)
			case from.FieldPath != "":
				unknown(variable.Name, "comes from the field %s of the Pod", from.FieldPath)
			default:
				unknown(variable.Name, "comes from %s of the Pod", kind)
			}
		}
	}
	return e
}

func sortedKeys(data map[string]string) []string {
	keys := make([]string, 0, len(data))
	for key := range data {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

var reference = regexp.MustCompile(`\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expanded fills $(NAME) in as Kubernetes does: from variables that stand before, and else not at all; $$ is a dollar sign.
func expanded(value string, known map[string]string) string {
	return reference.ReplaceAllStringFunc(value, func(found string) string {
		if found == "$$" {
			return "$"
		}
		if value, ok := known[found[2:len(found)-1]]; ok {
			return value
		}
		return found
	})
}

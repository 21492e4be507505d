package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weirhq/weir/pkg/nearest"
)

// maxFileBytes bounds what is read of a configuration file.
const maxFileBytes = 1 << 20

// Source is where settings come from. The zero value gives the defaults.
type Source struct {
	// Base is what the file, the environment and the command line are laid over, in place of the defaults.
	Base []Assignment
	// File is the path of a YAML file. Empty: none.
	File string
	// Environ is a list of NAME=VALUE, usually os.Environ(). Variables that do not begin with EnvPrefix are ignored.
	Environ []string
	// Flags are values from the command line by the path of their setting; a list's elements are separated by commas.
	Flags map[string]string
}

// Load returns the settings that source gives, complete and valid. It reads the files of secrets once, to report at once
// those that cannot be read. If the configuration file cannot be read the error is that of package os, and wraps
// fs.ErrNotExist if there is none; else the error is Problems, all of them.
func Load(source Source) (*Config, error) {
	c := Defaults()
	places := make(map[string]place)
	problems := applyBase(c, source.Base, places)
	if source.File != "" {
		text, err := readFile(source.File)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		d := decoder{file: source.File, places: places}
		d.decode(text, c)
		problems = append(problems, d.problems...)
	}
	problems = append(problems, applyEnv(c, source.Environ, places)...)
	problems = append(problems, applyFlags(c, source.Flags, places)...)
	if _, written := places["rules.paths"]; c.Rules.XDS.Enabled() && !written {
		c.Rules.Paths = nil // the default is for who has no other rules
	}
	c.complete()
	unread := problems // whose settings keep a value that nobody wrote
	for _, problem := range c.validate() {
		problem = newProblem(places[problem.Setting], problem.Setting, problem.Message)
		if !slices.ContainsFunc(unread, func(p *Problem) bool { return p.Setting == problem.Setting }) {
			problems = append(problems, problem)
		}
	}
	if len(problems) > 0 {
		problems.sort()
		return nil, problems
	}
	return c, nil
}

var commandLine = place{text: "command line"}

func applyFlags(c *Config, flags map[string]string, places map[string]place) Problems {
	byPath := make(map[string]setting)
	for _, s := range settings(c) {
		byPath[s.path] = s
	}
	var problems Problems
	for _, path := range slices.Sorted(maps.Keys(flags)) {
		s, ok := byPath[path]
		if !ok {
			message := "no such setting"
			if near := nearest.Name(path, slices.Sorted(maps.Keys(byPath))); near != "" {
				message += ": did you mean " + near + "?"
			}
			problems = append(problems, newProblem(commandLine, path, message))
			continue
		}
		places[path] = commandLine
		if err := set(s.value, flags[path]); err != nil {
			problems = append(problems, newProblem(commandLine, path, err.Error()))
		}
	}
	return problems
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, fmt.Errorf("%s: the file is larger than %d bytes: is it the right one?", path, maxFileBytes)
	}
	return text, nil
}

// secretPair is a secret and the setting of a file that holds it.
type secretPair struct {
	path   string // of the secret; its file's is path_file
	secret *Secret
	file   string
}

func (c *Config) secrets() []secretPair {
	return []secretPair{
		{"redis.password", &c.Redis.Password, c.Redis.PasswordFile},
		{"redis.sentinel_password", &c.Redis.SentinelPassword, c.Redis.SentinelPasswordFile},
		{"redis_per_second.password", &c.PerSecond.Password, c.PerSecond.PasswordFile},
		{"redis_per_second.sentinel_password", &c.PerSecond.SentinelPassword, c.PerSecond.SentinelPasswordFile},
		{"database.password", &c.Database.Password, c.Database.PasswordFile},
		{"log.hash_key", &c.Log.HashKey, c.Log.HashKeyFile},
	}
}

// complete sets what follows from other settings.
func (c *Config) complete() {
	for _, redis := range []*Redis{&c.Redis, &c.PerSecond} {
		if strings.HasPrefix(string(redis.URL), "rediss:") {
			redis.TLS.Enabled = true
		}
	}
	for _, pair := range c.secrets() {
		// One that is written out too is left for validate to refuse.
		if pair.file != "" && pair.secret.IsZero() {
			*pair.secret = SecretFromFile(pair.file)
		}
	}
}

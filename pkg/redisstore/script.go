package redisstore

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/weirhq/weir/pkg/ratelimit"
)

//go:embed scripts/*.lua
var scripts embed.FS

// script is a program as Redis is given it, and the digest by which it is called then.
type script struct{ source, digest string }

// loadScript joins the parts of the script: what all algorithms need, one part for each, and what decides a call.
var loadScript = sync.OnceValues(func() (script, error) {
	parts := []string{"prelude"}
	for _, algorithm := range ratelimit.Algorithms() {
		parts = append(parts, algorithm.String())
	}
	var source strings.Builder
	for _, part := range append(parts, "envoy_window", "take") {
		text, err := scripts.ReadFile("scripts/" + part + ".lua")
		if err != nil {
			return script{}, fmt.Errorf("a part of the Redis script is missing: write pkg/redisstore/scripts/%s.lua: %w", part, err)
		}
		strip(&source, string(text))
	}
	digest := sha1.Sum([]byte(source.String())) //nolint:gosec // see above
	return script{source.String(), hex.EncodeToString(digest[:])}, nil
})

// strip writes a program without its comments and indents: what Redis has to be sent and to keep is half as long then. Lines
// stay lines, so that those in error messages can be counted. (No line of a string begins like a comment.)
func strip(dst *strings.Builder, program string) {
	for line := range strings.Lines(program) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "--") {
			dst.WriteString(line)
		}
		dst.WriteByte('\n')
	}
}

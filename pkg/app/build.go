package app

import (
	"runtime"
	"runtime/debug"
)

// Build says what a binary was made from.
type Build struct {
	Version  string `json:"version"`  // a tag, or "dev"
	Revision string `json:"revision"` // the commit, "unknown" where it was not recorded
	Go       string `json:"go"`       // the toolchain
}

// BuildInfo returns what this binary was made from. version is what the linker recorded, empty if it did not.
func BuildInfo(version string) Build {
	build := Build{Version: version, Revision: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			build.Revision = setting.Value
		}
	}
	switch {
	case build.Version != "":
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		build.Version = info.Main.Version
	default:
		build.Version = "dev"
	}
	return build
}

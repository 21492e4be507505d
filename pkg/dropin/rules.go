package dropin

import (
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirhq/weir/pkg/config"
)

// The values of CONFIG_TYPE.
const (
	fileConfig = "FILE"
	xdsConfig  = "GRPC_XDS_SOTW"
)

func configType(m *mapping, v *Variable) {
	switch value := m.text(v.Name); value {
	case fileConfig:
	case xdsConfig:
		if force := "FORCE_START_WITHOUT_INITIAL_CONFIG"; !m.bool(force) {
			m.need(force, config.NeedFirstRules)
		}
	default:
		m.fault(v.Name, "%q is no source of rules: write %s or %s", value, fileConfig, xdsConfig)
	}
}

func healthyWithRules(m *mapping, v *Variable) {
	if m.bool(v.Name) {
		m.need(v.Name, config.NeedRules)
	}
}

func runtimeFolder(m *mapping, v *Variable) {
	folder := filepath.Join(m.text(v.Name), m.text("RUNTIME_SUBDIRECTORY"), m.text("RUNTIME_APPDIRECTORY"))
	if folder == "" {
		m.fault(v.Name, "is empty, and so are RUNTIME_SUBDIRECTORY and RUNTIME_APPDIRECTORY: name the folder that holds the rules")
		return
	}
	m.list(v.Name, "rules.paths", []string{folder})
}

// watchesBoth has nothing to do: whatever leads to the rules is watched, links and folders.
func watchesBoth(*mapping, *Variable) {}

func dotFiles(m *mapping, v *Variable) {
	if m.set(v.Name) && !m.bool(v.Name) {
		m.notice(v.Name, "is false, and files whose names begin with a dot are no rules all the same: rename those that are")
	}
}

func xdsServer(m *mapping, v *Variable) {
	server := m.text(v.Name)
	for _, scheme := range []string{"dns:///", "passthrough:///", "dns:"} {
		if rest, ok := strings.CutPrefix(server, scheme); ok {
			server = rest
			break
		}
	}
	if server == "" {
		m.fault(v.Name, "is empty: write HOST:PORT of the control plane, such as envoy-gateway:18001")
		return
	}
	m.assign(v.Name, "rules.xds.server", server)
}

// xdsMetadata passes on what is NAME=VALUE and leaves out the rest, as envoyproxy/ratelimit does.
func xdsMetadata(m *mapping, v *Variable) {
	var kept []string
	for _, text := range listOf(m.text(v.Name)) {
		if name, _, ok := strings.Cut(text, "="); ok && name != "" {
			kept = append(kept, text)
		} else {
			m.notice(v.Name, "%q is left out, because it is not NAME=VALUE", text)
		}
	}
	if kept != nil {
		m.list(v.Name, "rules.xds.node_metadata", kept)
	}
}

func xdsHeaders(m *mapping, v *Variable) {
	var headers []string
	for _, header := range pairsOf(m.text(v.Name)) {
		headers = append(headers, header.name+"="+header.value)
	}
	if headers != nil {
		m.list(v.Name, "rules.xds.headers", headers)
	}
}

// xdsBackoff sets both ends, since either may lie beyond weir's default of the other.
func xdsBackoff(m *mapping, v *Variable) {
	const longest = "XDS_CLIENT_BACKOFF_MAX_INTERVAL"
	if !m.set(v.Name) && !m.set(longest) {
		return
	}
	m.assign(v.Name, "rules.xds.backoff_initial", m.duration(v.Name).String())
	m.assign(longest, "rules.xds.backoff_max", m.duration(longest).String())
}

// xdsFactor is how much longer each wait is. Below 1, its default included, envoyproxy/ratelimit always waits the same time.
func xdsFactor(m *mapping, v *Variable) {
	if !m.set(v.Name) {
		return
	}
	factor, _ := strconv.ParseFloat(m.text(v.Name), 64) // check has read it
	if factor < 1 {
		factor = 1
	}
	m.assign(v.Name, "rules.xds.backoff_factor", strconv.FormatFloat(factor, 'f', -1, 64))
}

func xdsMessage(m *mapping, v *Variable) {
	if m.integer(v.Name) != 0 {
		m.assign(v.Name, "rules.xds.max_message_bytes", m.plain(v.Name))
	}
}

package access

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir/kongplugin/internal/pluginserver"
	"github.com/weirhq/weir/kongplugin/internal/settings"
)

// Backends make the deciders of instances.
type Backends struct {
	// Remote asks a weir server, Embedded runs the engine in this process, StandIn counts in it while the server is away.
	Remote, Embedded, StandIn func(*settings.Settings) (Decider, error)
}

// Plugin makes instances. It is safe for concurrent use.
type Plugin struct {
	backends Backends
	logger   *slog.Logger
	recorder Recorder
	faults   faults
}

var _ pluginserver.Plugin = (*Plugin)(nil)

// NewPlugin returns a Plugin on these backends. recorder may be nil.
func NewPlugin(backends Backends, logger *slog.Logger, recorder Recorder) *Plugin {
	return &Plugin{backends: backends, logger: logger, recorder: recorder, faults: faults{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{})}}
}

// Start returns an instance for a config as Kong sends it. One whose config is faulty handles requests too: as those that
// nobody can decide.
func (p *Plugin) Start(config []byte) pluginserver.Instance {
	s, problems := settings.Parse(config)
	i := &Instance{settings: s, logger: p.logger, recorder: p.recorder, now: time.Now}
	if err := i.prepare(&p.backends, errors.Join(problems...)); err != nil {
		i.Close()
		i.decider, i.fallback = nil, nil
		if p.faults.first(config) {
			p.logger.Error("a plugin config cannot be used: its requests are not limited, or fail if fault_tolerant is off",
				"error", err, "fault_tolerant", s.FaultTolerant)
		}
	}
	return i
}

// prepare fills in what the settings ask for. On an error the instance still can speak.
func (i *Instance) prepare(backends *Backends, problem error) error {
	var err error
	if i.speech, err = newSpeech(i.settings); err != nil {
		plain := *i.settings
		plain.ErrorBody = ""
		if i.speech, _ = newSpeech(&plain); i.speech == nil {
			i.speech = &speech{format: formNegotiate}
		}
	}
	if err = errors.Join(problem, err); err != nil {
		return err
	}
	if i.questions, err = questions(i.settings); err != nil {
		return err
	}
	open := backends.Remote
	if i.settings.Mode == "embedded" {
		open = backends.Embedded
	}
	if i.decider, err = open(i.settings); err != nil {
		return err
	}
	if i.settings.Mode == "grpc" && i.settings.Fallback == "local" {
		i.fallback, err = backends.StandIn(i.settings)
	}
	return err
}

// maxFaults bounds the faulty configs that are remembered.
const maxFaults = 4096

// faults remembers which configs were found faulty, because each nginx worker starts an instance of each, and Kong starts
// them again after errors of its own.
type faults struct {
	seed maphash.Seed
	mu   sync.Mutex
	seen map[uint64]struct{}
}

func (f *faults) first(config []byte) bool {
	sum := maphash.Bytes(f.seed, config)
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.seen[sum]; ok {
		return false
	}
	if len(f.seen) >= maxFaults {
		clear(f.seen)
	}
	f.seen[sum] = struct{}{}
	return true
}

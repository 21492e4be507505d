package access

import "time"

// Result is what became of a request.
type Result uint8

// The results.
const (
	Passed  Result = iota // decided, and it goes on
	Limited               // decided, and it is denied
	DryRun                // it goes on, and would have been denied without dry_run
	Skipped               // it has no identity, and such are not limited
	Fault                 // nobody could decide: it goes on, or is denied if fault_tolerant is off
	Broken                // Kong's connection broke while it was asked about the request, which it repeats
)

var resultNames = [...]string{"passed", "limited", "dry_run", "skipped", "fault", "broken"}

// Results returns all results, in their order.
func Results() []Result { return []Result{Passed, Limited, DryRun, Skipped, Fault, Broken} }

// String returns the result's name, in small letters.
func (r Result) String() string { return resultNames[r] }

// Recorder is told what became of each request, for metrics. It must be quick and safe for concurrent use.
type Recorder interface {
	// Handled is called once for a request, before Kong is told. mode is grpc or embedded; took is how long it has taken to find
	// out, Kong's answers included.
	Handled(mode string, result Result, took time.Duration)
}

// handling is one request's place in the metrics.
type handling struct {
	recorder Recorder // nil once it was told, or if there is none
	mode     string
	begin    time.Time
}

func (i *Instance) handling() handling {
	if i.recorder == nil {
		return handling{}
	}
	return handling{recorder: i.recorder, mode: i.settings.Mode, begin: i.now()}
}

// ended tells the recorder, once.
func (h *handling) ended(result Result, now func() time.Time) {
	if h.recorder == nil {
		return
	}
	h.recorder.Handled(h.mode, result, now().Sub(h.begin))
	h.recorder = nil
}

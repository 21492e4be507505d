package bench

import (
	"fmt"
	"time"
)

// tally is what one lane has seen since the last reset.
type tally struct {
	latency Histogram // of right replies
	lag     Histogram // open loop: from the intended instant to the write
	allowed uint64
	denied  uint64
	faults  faults
	unsent  uint64 // open loop: calls that were due and not sent by the end
}

func (t *tally) add(other *tally) {
	t.latency.Add(&other.latency)
	t.lag.Add(&other.lag)
	t.allowed += other.allowed
	t.denied += other.denied
	t.unsent += other.unsent
	t.faults.merge(&other.faults)
}

func (t *tally) calls() uint64 { return t.allowed + t.denied }

// missed records a call that was due at an instant and has not been sent: the latency that it would have had at least.
func (t *tally) missed(waited time.Duration) {
	t.unsent++
	t.latency.Record(waited)
}

// Expectation is what every reply must say.
type Expectation struct {
	// Code is the overall code: "OK", "OVER_LIMIT", or "any" for either. Empty: what the workload gets from the rules of Rules.
	Code string
	// Statuses is the number of statuses. 0: one per descriptor.
	Statuses int
}

// expectation is an Expectation that has been checked.
type expectation struct {
	code     uint64 // 0: any
	statuses int
}

func (e expectation) String() string {
	if e.code == 0 {
		return "OK or OVER_LIMIT"
	}
	return codeName(e.code)
}

func (e Expectation) resolve(w Workload) (expectation, error) {
	out := expectation{statuses: e.Statuses}
	if e.Statuses == 0 {
		out.statuses = w.descriptors()
	}
	switch e.Code {
	case "":
		out.code = codeOK
		if w.Kind == Over {
			out.code = codeOverLimit
		}
	case "OK":
		out.code = codeOK
	case "OVER_LIMIT":
		out.code = codeOverLimit
	case "any":
	default:
		return expectation{}, fmt.Errorf("unknown code %q: write OK, OVER_LIMIT or any", e.Code)
	}
	return out, nil
}

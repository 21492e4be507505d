package bench

import "fmt"

// Fault is a way in which a call can fail.
type Fault string

// The faults. A call has at most one.
const (
	FaultStatus   Fault = "status"   // HTTP or gRPC status other than OK
	FaultReply    Fault = "reply"    // no RateLimitResponse, or not one alone
	FaultCode     Fault = "code"     // overall_code is not what the workload must get
	FaultStatuses Fault = "statuses" // not one status per descriptor
	FaultLimit    Fault = "limit"    // a status without the limit that this server told before: it lets pass what it cannot count
	FaultReset    Fault = "reset"    // the server reset the stream
	FaultTimeout  Fault = "timeout"  // no reply in time
	FaultLost     Fault = "lost"     // the connection ended before the reply
)

// faults counts calls that failed, by how, with the text of the first of each kind.
type faults struct {
	counts   map[Fault]uint64
	examples map[Fault]string
}

func (f *faults) add(fault Fault, format string, args ...any) {
	if f.counts == nil {
		f.counts, f.examples = map[Fault]uint64{}, map[Fault]string{}
	}
	f.counts[fault]++
	if f.counts[fault] == 1 {
		f.examples[fault] = shown(fmt.Sprintf(format, args...))
	}
}

func (f *faults) merge(other *faults) {
	for fault, n := range other.counts {
		if f.counts == nil {
			f.counts, f.examples = map[Fault]uint64{}, map[Fault]string{}
		}
		if f.counts[fault] == 0 {
			f.examples[fault] = other.examples[fault]
		}
		f.counts[fault] += n
	}
}

const maxShown = 200

// shown makes a text that comes from a server fit for a terminal.
func shown(text string) string {
	runes := []rune(text)
	for i, r := range runes {
		if r < ' ' || r == 0x7f {
			runes[i] = ' '
		}
	}
	if len(runes) > maxShown {
		return string(runes[:maxShown]) + "..."
	}
	return string(runes)
}

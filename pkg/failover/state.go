package failover

import "fmt"

// State is the breaker's.
type State uint32

// The states.
const (
	Closed   State = iota // every call reaches the store
	Open                  // none does
	HalfOpen              // none does but the probe that is under way
)

// States returns every state, in the order of their constants.
func States() []State { return []State{Closed, Open, HalfOpen} }

// String returns the state as metrics spell it: closed, open or half_open.
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half_open"
	default:
		return fmt.Sprintf("state(%d)", uint32(s))
	}
}

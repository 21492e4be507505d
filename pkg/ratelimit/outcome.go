package ratelimit

// Outcome is how a descriptor's decision ended, as metrics and logs count it.
type Outcome uint8

// The outcomes.
const (
	OutcomeNone         Outcome = iota // no rule matched, or the domain is unknown
	OutcomeAllowed                     // within the limit, or nothing to count
	OutcomeDenied                      // over the limit, and enforced
	OutcomeShadowDenied                // over the limit of a rule in shadow mode: let pass
	OutcomeFailedOpen                  // the store could not decide: let pass
	OutcomeFailedClosed                // the store could not decide: denied
	OutcomeLocal                       // the store could not decide: decided by counters in this process
)

var outcomeNames = [...]string{"none", "allowed", "denied", "shadow_denied", "failed_open", "failed_closed", "local"}

// Outcomes returns every outcome, in the order of their constants.
func Outcomes() []Outcome {
	outcomes := make([]Outcome, len(outcomeNames))
	for i := range outcomes {
		outcomes[i] = Outcome(i)
	}
	return outcomes
}

// String returns the outcome as metrics spell it.
func (o Outcome) String() string {
	if int(o) >= len(outcomeNames) {
		return "unknown"
	}
	return outcomeNames[o]
}

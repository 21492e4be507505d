// Package alarm calls back at times that hardly ever matter: deadlines of round trips that end long before, or bounds on waits
// that are over by then. Setting a timer costs more than one that goes off in vain now and then, because it may wake a processor
// that sleeps. So an Alarm is never stopped, and set anew only to go off earlier: whoever it calls looks at what has become due,
// and sets it again if something will be.
package alarm

import "time"

// Alarm is one timer. The zero value is not set. Its methods are for one goroutine at a time: a mutex of the Ringer's guards them.
type Alarm struct {
	timer *time.Timer
	at    time.Time // zero: it is not set
}

// Ringer is called in a goroutine of its own when an Alarm goes off, and is to call Rang.
type Ringer interface{ Ring() }

// By sees to it that the alarm goes off at a time, or before. It must be given the same Ringer each time.
func (a *Alarm) By(at time.Time, r Ringer) {
	if a.IsSet() && !at.Before(a.at) {
		return
	}
	a.at = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), r.Ring)
		return
	}
	a.timer.Reset(time.Until(at))
}

// Rang tells that the alarm has gone off: it is not set any more.
func (a *Alarm) Rang() { a.at = time.Time{} }

// IsSet reports whether the alarm is yet to go off.
func (a *Alarm) IsSet() bool { return !a.at.IsZero() }

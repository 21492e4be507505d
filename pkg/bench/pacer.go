package bench

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"
)

// pacer makes the calls of an open loop: at instants that are drawn before, with exponential gaps, over the lanes in turn. A
// pacer that comes late, because the machine is busy or no lane takes more, sends what was due at once; how late is measured.
type pacer struct {
	load     *load
	random   *rand.Rand
	mean     float64 // nanoseconds between calls
	due      int64   // the next call's instant
	stopping atomic.Bool
	ended    chan struct{}
}

const (
	longestNap = int64(50 * time.Millisecond) // between looks at stopping
	fullNap    = int64(time.Millisecond)      // while no lane takes more
)

func startPacer(l *load, round int) *pacer {
	p := &pacer{
		load: l, mean: float64(time.Second) / l.options.Rate, ended: make(chan struct{}),
		random: rand.New(rand.NewPCG(l.options.Seed, 1<<32+uint64(round))), //nolint:gosec // loads are to be repeatable
	}
	p.due = now() + p.gap()
	go p.run()
	return p
}

func (p *pacer) gap() int64 { return int64(p.random.ExpFloat64() * p.mean) }

// stop ends the pacer. It may be called again, and on nil.
func (p *pacer) stop() {
	if p == nil {
		return
	}
	p.stopping.Store(true)
	<-p.ended
}

// finish ends the pacer and counts what was due until an instant and has not been sent.
func (p *pacer) finish(until int64, seen *tally) {
	p.stop()
	for ; p.due < until; p.due += p.gap() {
		seen.missed(time.Duration(until - p.due))
	}
}

func (p *pacer) run() {
	defer close(p.ended)
	runtime.LockOSThread() // nap is a matter of the thread
	defer runtime.UnlockOSThread()
	sharpen()
	for next := 0; !p.stopping.Load(); {
		if ahead := p.due - now(); ahead > 0 {
			nap(min(ahead, longestNap))
			continue
		}
		if !p.send(&next) {
			nap(fullNap)
		}
	}
}

// send makes the calls that are due. It reports false when no lane takes more.
func (p *pacer) send(next *int) bool {
	lanes := p.load.lanes
	defer p.load.each((*lane).flush)
	for at := now(); p.due <= at; p.due += p.gap() {
		if !p.issue(next) {
			return false
		}
		if *next%len(lanes) == 0 && p.stopping.Load() {
			p.due += p.gap()
			return true
		}
	}
	return true
}

// issue gives the call that is due to the next lane that takes it.
func (p *pacer) issue(next *int) bool {
	lanes := p.load.lanes
	for range lanes {
		lane := lanes[*next%len(lanes)]
		*next++
		lane.mu.Lock()
		taken := lane.waiting.len() < maxWaiting
		if taken {
			lane.issue(p.due)
		}
		lane.mu.Unlock()
		if taken {
			return true
		}
	}
	return false
}

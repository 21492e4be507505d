package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxUnderWay bounds the calls under way in an open loop; what is due beyond it waits, and its waiting counts.
	maxUnderWay = 4096
	// maxWaiting bounds what waits in a lane; beyond it the pacer itself waits.
	maxWaiting = 64 << 10

	walkers = 16 // calls at once per lane while all keys are asked for once

	tick = 250 * time.Millisecond // of progress
)

// load is everything that asks one target. Its connections stay open while other targets have their turns.
type load struct {
	target    Target
	options   Options
	requests  *requests
	expect    expectation
	frameSize int // bytes of a request with gRPC's prefix
	laneCalls int // most calls under way in a lane
	lanes     []*lane
	limits    atomic.Int64 // most limits that a reply has told

	closing context.Context
	end     context.CancelCauseFunc
	readers sync.WaitGroup
}

// newLoad connects to the target.
func newLoad(ctx context.Context, target Target, options Options, made *requests, expect expectation) (*load, error) {
	l := &load{target: target, options: options, requests: made, expect: expect, frameSize: made.size() + messagePrefix}
	l.closing, l.end = context.WithCancelCause(context.WithoutCancel(ctx))
	l.laneCalls = max(walkers, options.Callers)
	if l.open() {
		l.laneCalls = max(maxUnderWay/options.Connections, walkers)
	}
	for i := range options.Connections {
		lane := newLane(l, i)
		if err := lane.connect(ctx); err != nil {
			l.close()
			return nil, err
		}
		l.lanes = append(l.lanes, lane)
	}
	l.readers.Go(l.expire)
	return l, nil
}

// close ends all connections and everything that reads them.
func (l *load) close() {
	l.end(context.Canceled)
	l.each(func(lane *lane) {
		for c := range lane.conns {
			c.fail(context.Canceled)
		}
	})
	l.readers.Wait()
}

// fail ends the run: the server is away.
func (l *load) fail(err error) { l.end(err) }

// told notes how many limits a reply has told. A server that has told limits once tells them always, unless it does not count.
func (l *load) told(limits int64) {
	for most := l.limits.Load(); limits > most && !l.limits.CompareAndSwap(most, limits); most = l.limits.Load() {
	}
}

// open tells whether calls are sent at a rate.
func (l *load) open() bool { return l.options.Rate > 0 }

func (l *load) each(do func(*lane)) {
	for _, lane := range l.lanes {
		lane.mu.Lock()
		do(lane)
		lane.mu.Unlock()
	}
}

// expire gives up calls without a reply. The server, which knows the timeout too, is left some time to say so itself.
func (l *load) expire() {
	timeout := l.options.Timeout
	ticker := time.NewTicker(min(max(timeout/8, 5*time.Millisecond), tick))
	defer ticker.Stop()
	for {
		select {
		case <-l.closing.Done():
			return
		case <-ticker.C:
			before := now() - int64(timeout+max(timeout/8, 20*time.Millisecond))
			l.each(func(lane *lane) { lane.expire(before) })
		}
	}
}

// sleep returns early, with an error, when the run is interrupted or the server is away.
func (l *load) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closing.Done():
		return context.Cause(l.closing)
	}
}

// prime asks for every key once, so that what is measured is not the making of counters, and keys with a limit of one are
// over it.
func (l *load) prime(ctx context.Context) error {
	keys, lanes := l.requests.keys, len(l.lanes)
	for i, lane := range l.lanes {
		lane.mu.Lock()
		lane.expect = expectation{statuses: l.expect.statuses}
		lane.walk = newWalk(i, lanes, keys)
		lane.repeat = true
		for range walkers {
			lane.next()
		}
		lane.flush()
		lane.mu.Unlock()
	}
	for {
		left := 0
		l.each(func(lane *lane) { left += lane.walk.left + lane.waiting.len() + lane.underWay() })
		if left == 0 {
			break
		}
		if err := l.sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	l.each(func(lane *lane) { lane.walk, lane.repeat = walk{}, false })
	faults := l.take().faults
	return faults.err(l.target, keys)
}

// take returns what has been seen since the last time.
func (l *load) take() *tally {
	sum := new(tally)
	l.each(func(lane *lane) {
		sum.add(lane.tally)
		*lane.tally = tally{}
	})
	return sum
}

// start lets calls be made.
func (l *load) start(round int) *pacer {
	if l.open() {
		l.each(func(lane *lane) { lane.expect = l.expect })
		return startPacer(l, round)
	}
	callers := l.options.Callers
	for i, lane := range l.lanes {
		lane.mu.Lock()
		lane.expect = l.expect
		lane.repeat = true
		for range callers/len(l.lanes) + min(1, max(0, callers%len(l.lanes)-i)) {
			lane.next()
		}
		lane.flush()
		lane.mu.Unlock()
	}
	return nil
}

// stop lets the calls under way end and makes no others.
func (l *load) stop() {
	l.each(func(lane *lane) {
		lane.repeat = false
		lane.walk = walk{}
		lane.waiting.clear()
	})
	for {
		left := 0
		l.each(func(lane *lane) {
			lane.waiting.clear() // what a server gave back
			left += lane.underWay()
		})
		if left == 0 || l.closing.Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// turn is one round of one target.
func (l *load) turn(ctx context.Context, round int, show func(phase string, calls uint64, over time.Duration)) (*Round, error) {
	pace := l.start(round)
	defer l.stop()
	defer pace.stop()

	if err := l.watch(ctx, l.options.Warmup, "warming up", show); err != nil {
		return nil, err
	}
	meters, err := openMeters(l.target.Processes)
	if err != nil {
		return nil, err
	}
	warm := l.take()
	began := now()
	before, err := meters.read()
	if err != nil {
		return nil, err
	}
	if err := l.watch(ctx, l.options.Duration, "measuring", show); err != nil {
		return nil, err
	}
	after, err := meters.read()
	if err != nil {
		return nil, err
	}
	ended := now()
	seen := l.take()
	if pace != nil {
		l.each(func(lane *lane) {
			for _, due := range lane.waiting.all() {
				seen.missed(time.Duration(ended - due))
			}
		})
		pace.finish(ended, seen)
	}
	l.stop()
	seen.faults.merge(&warm.faults)
	seen.faults.merge(&l.take().faults)
	return newRound(seen, time.Duration(ended-began), meters.since(before, after)), nil
}

// watch lets time pass and shows how it goes.
func (l *load) watch(ctx context.Context, d time.Duration, phase string, show func(string, uint64, time.Duration)) error {
	began := now()
	end := began + int64(d)
	for {
		left := time.Duration(end - now())
		if left <= 0 {
			return nil
		}
		if err := l.sleep(ctx, min(left, tick)); err != nil {
			return err
		}
		var calls uint64
		l.each(func(lane *lane) { calls += lane.tally.calls() })
		show(phase, calls, time.Duration(now()-began))
	}
}

// err refuses a server that does not answer as it should, before the first round. Up to a tenth of its calls may have failed, as
// some do on a machine that is busy starting servers.
func (f *faults) err(target Target, calls int) error {
	failed := total(f.counts)
	if failed <= uint64(calls/10) { //nolint:gosec // not negative
		return nil
	}
	for _, text := range f.examples {
		return fmt.Errorf("%s: %d calls failed before the first round, one of them with: %s", target.Address, failed, text)
	}
	return nil
}

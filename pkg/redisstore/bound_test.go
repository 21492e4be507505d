package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// over reports whether the channel is closed.
func over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// One bound serves round trips of all lengths, one after the other, and ends each at its deadline and never before.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bound
		var last <-chan struct{}
		for i, trip := range []struct{ deadline, lasts time.Duration }{
			{100 * time.Millisecond, time.Millisecond},
			{100 * time.Millisecond, 99 * time.Millisecond}, // the first one's timer goes off in it
			{10 * time.Millisecond, time.Millisecond},       // earlier than the timer that is set
			{10 * time.Millisecond, 10 * time.Millisecond},  // ends
			{10 * time.Millisecond, 10 * time.Millisecond},  // again
			{100 * time.Millisecond, 5 * time.Millisecond},  // after one that ended
			{time.Hour, time.Hour},
			{time.Millisecond, 0},
			{-time.Millisecond, 0}, // over before it began
		} {
			ends := time.Now().Add(trip.deadline)
			b.begin(ends)
			if at, ok := b.Deadline(); !ok || !at.Equal(ends) {
				t.Errorf("%d: the deadline is %v, want %v", i, at, ends)
			}
			done := b.Done()
			time.Sleep(trip.lasts)
			synctest.Wait()
			if trip.deadline < 0 {
				time.Sleep(time.Nanosecond)
				synctest.Wait()
			}
			ended := trip.lasts >= trip.deadline
			if over(done) != ended || over(b.Done()) != ended {
				t.Errorf("%d: after %v of %v its channel is closed: %v", i, trip.lasts, trip.deadline, over(done))
			}
			if err := b.Err(); errors.Is(err, context.DeadlineExceeded) != ended || (err == nil) == ended {
				t.Errorf("%d: after %v of %v: %v", i, trip.lasts, trip.deadline, err)
			}
			b.end()
			if err := b.Err(); err != nil {
				t.Errorf("%d: once the trip is over: %v", i, err)
			}
			last = done
		}
		time.Sleep(2 * time.Hour) // no round trip is under way when the timer goes off
		synctest.Wait()
		if b.begin(time.Now().Add(time.Minute)); over(b.Done()) || b.Done() == last {
			t.Error("a new trip has ended")
		}
		b.end()
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.alarm.IsSet() {
			t.Error("the timer is set while nobody needs it")
		}
	})
}

// It is a context for package context too.
func TestBoundAsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bound
		b.begin(time.Now().Add(time.Second))
		ctx, cancel := context.WithCancel(&b)
		defer cancel()
		<-ctx.Done()
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) || b.Err() == nil {
			t.Errorf("%v, %v", ctx.Err(), b.Err())
		}
		b.end()
	})
}

// A connection's deadline is changed seldom, is never later than what was asked for, and earlier by an eighth at most.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadline
		var set time.Time
		changes := 0
		change := func(to time.Time) error {
			set = to
			changes++
			return nil
		}
		apply := func(wanted time.Time) {
			t.Helper()
			d.wanted = wanted
			if err := d.apply(change); err != nil {
				t.Fatal(err)
			}
			switch {
			case wanted.IsZero() != set.IsZero():
				t.Errorf("%v is wanted, %v is set", wanted, set)
			case set.After(wanted) || wanted.Sub(set) > max(0, time.Until(wanted)/8):
				t.Errorf("%v is set, %v before what is wanted", set, wanted.Sub(set))
			}
		}
		apply(time.Time{})
		for range 1000 { // a second of round trips
			apply(time.Now().Add(100 * time.Millisecond))
			time.Sleep(time.Millisecond)
		}
		if changes > 100 {
			t.Errorf("it was changed %d times", changes)
		}
		apply(time.Now().Add(10 * time.Millisecond)) // less than is set
		apply(time.Now().Add(time.Hour))
		apply(time.Time{})
		apply(time.Now().Add(time.Millisecond))
		time.Sleep(time.Second)
		apply(time.Now().Add(time.Millisecond)) // what is set is over
		apply(time.Now().Add(-time.Second))
		fails := errors.New("fails")
		d.wanted = time.Now().Add(time.Hour)
		if err := d.apply(func(time.Time) error { return fails }); !errors.Is(err, fails) {
			t.Errorf("error %v", err)
		}
		apply(d.wanted) // it was not set
	})
}

// What was asked of a connection holds for what begins afterwards.
func TestConnHasItsDeadline(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	c := &conn{Conn: here, dialer: newDialer(nil), peer: new(peer)}
	_ = c.SetDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	if _, err := c.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("write: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	_ = c.SetWriteDeadline(time.Time{})
	go func() { _, _ = there.Write([]byte("x")) }()
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("without a deadline: %d, %v", n, err)
	}
}

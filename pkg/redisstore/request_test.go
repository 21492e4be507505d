package redisstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/pkg/ratelimit"
	"github.com/weirhq/weir/test/servers"
)

// The script picks the calendar window by its own clock, which need not be the one by which the windows were sent.
func TestCalendarUnderAnotherClock(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	store, err := New(Options{Addr: server.Addr(), Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	l := &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: 10, Calendar: ratelimit.CalendarMonth}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	day := func(month time.Month, day int) time.Time { return time.Date(2026, month, day, 0, 0, 0, 0, time.UTC) }
	second := time.Second
	for i, test := range []struct {
		sender, script time.Time
		reset          time.Duration
	}{
		{day(3, 15), day(3, 15), 17 * 24 * time.Hour},
		{day(3, 1), day(3, 1).Add(-second), second},              // the sender is in the next month already
		{day(4, 1).Add(-second), day(4, 1), 30 * 24 * time.Hour}, // the script is
		{day(3, 1), day(5, 31), 24 * time.Hour},
		{day(3, 1), day(6, 2), 29 * 24 * time.Hour}, // no window was sent for it: nominal months go on from the last one
		{day(3, 1), day(7, 11), 20 * 24 * time.Hour},
		{day(3, 1), day(1, 30), 2 * 24 * time.Hour}, // nor for one so early
	} {
		t.Run(fmt.Sprintf("sent in %v, run in %v", test.sender, test.script), func(t *testing.T) {
			c := ratelimit.Charge{
				Hits:    []ratelimit.Hit{{Key: fmt.Sprintf("calendar:%d:month", i), Limit: l, Cost: 1}},
				Results: make([]ratelimit.Result, 1),
			}
			r, sent := requestOf(test.sender, false, &c)
			micros := test.script.UnixMicro()
			r.pack(&micros, &store.options)
			store.runServer(t.Context(), r)
			sent.deliver([]ratelimit.Charge{c})
			c.Err = sent.charges[0].err
			if c.Err != nil || c.Results[0].Granted != 1 || c.Results[0].ResetAfter != test.reset {
				t.Errorf("%+v, %v; want it to end in %v", c.Results[0], c.Err, test.reset)
			}
			store.runServer(t.Context(), r)
			sent.deliver([]ratelimit.Charge{c})
			if sent.charges[0].err != nil || c.Results[0].Remaining != 8 {
				t.Errorf("the second charge: %+v, %v; want 8 left", c.Results[0], c.Err)
			}
		})
	}
}

// requestOf makes a request of charges.
func requestOf(now time.Time, tagged bool, charges ...*ratelimit.Charge) (*request, *call) {
	c := new(calls).get(context.Background(), time.Time{})
	for i := range charges {
		c.add(charges[i], i, tagged)
	}
	c.ready()
	r := new(request)
	for i := range c.charges {
		r.add(&c.charges[i], now)
	}
	return r, c
}

// What is used again holds nothing of the charges that it was used for.
func TestRequestForgets(t *testing.T) {
	t.Parallel()
	l := &ratelimit.Limit{Algorithm: ratelimit.TokenBucket, Count: 10, Window: time.Second}
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		c := ratelimit.Charge{ID: "id", Hits: []ratelimit.Hit{{Key: "a:1", Limit: l}, {Key: "a:2", Limit: l}}, Results: make([]ratelimit.Result, 2)}
		r, sent := requestOf(time.Now(), true, &c, &c)
		r.pack(nil, &Options{IdempotencyTTL: time.Minute})
		r.reset()
		new(calls).put(sent)
		for _, arg := range r.args[:cap(r.args)] {
			if arg != nil {
				t.Errorf("an argument is kept: %v", arg)
			}
		}
		for _, key := range r.keys[:cap(r.keys)] {
			if key != "" {
				t.Errorf("a key is kept: %q", key)
			}
		}
		for _, kept := range r.records[:cap(r.records)] {
			if kept.first != nil || kept.last != nil {
				t.Error("a charge is kept")
			}
		}
		for _, kept := range sent.hits[:cap(sent.hits)] {
			if kept.Key != "" || kept.Limit != nil {
				t.Errorf("a hit is kept: %+v", kept)
			}
		}
		for _, kept := range sent.charges[:cap(sent.charges)] {
			if kept.hits != nil || kept.err != nil || kept.idKey != "" {
				t.Errorf("a charge is kept: %+v", kept)
			}
		}
	}
}

func TestLimitsAreSentOnce(t *testing.T) {
	t.Parallel()
	limits := make([]*ratelimit.Limit, 2*maxSameLimit)
	for i := range limits {
		limits[i] = &ratelimit.Limit{Algorithm: ratelimit.FixedWindow, Count: int64(i), Window: time.Second}
	}
	r := new(request)
	for range 3 {
		for i := range 3 {
			if n := r.limit(limits[i], time.Now()); n != uint16(i) {
				t.Errorf("limit %d has number %d", i, n)
			}
		}
	}
	for _, l := range limits {
		if n := r.limit(l, time.Now()); r.limits[n] != l {
			t.Errorf("limit %d has the number of another", l.Count)
		}
	}
	if len(r.limits) != len(limits) {
		t.Errorf("%d limits were written for %d", len(r.limits), len(limits))
	}
	if n := r.limit(limits[0], time.Now()); r.limits[n] != limits[0] {
		t.Error("a limit that is far back has the number of another")
	}
}

package alarm

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bell notes when it rings.
type bell struct {
	mu    sync.Mutex
	alarm Alarm
	began time.Time
	rang  []time.Duration
}

func (b *bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm.Rang()
	b.rang = append(b.rang, time.Since(b.began))
}

// An alarm goes off once for all that it was set for before, at the earliest of these times, and can be set again.
func TestAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bell{began: time.Now()}
		by := func(d time.Duration) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.alarm.By(b.began.Add(d), b)
			if !b.alarm.IsSet() {
				t.Errorf("it is not set, by %v", d)
			}
		}
		by(50 * time.Millisecond)
		by(70 * time.Millisecond)
		by(20 * time.Millisecond)
		by(30 * time.Millisecond)
		time.Sleep(time.Second)
		synctest.Wait()
		by(2 * time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		by(0) // is over
		time.Sleep(time.Second)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if want := []time.Duration{20 * time.Millisecond, 2 * time.Second, 3 * time.Second}; !slices.Equal(b.rang, want) {
			t.Errorf("it went off at %v, want %v", b.rang, want)
		}
		if b.alarm.IsSet() {
			t.Error("it is set though it has gone off")
		}
	})
}

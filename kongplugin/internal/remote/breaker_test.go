package remote

import (
	"testing"
	"time"
)

func TestBreaker(t *testing.T) {
	var b breaker
	now := time.Unix(1_700_000_000, 0)
	for i := range breakAfter {
		if !b.allow(now) {
			t.Fatalf("closed after %d timeouts", i)
		}
		b.settle(now, true)
	}
	if b.allow(now) || b.allow(now.Add(breakFor-1)) {
		t.Error("open, and a request is let through")
	}
	now = now.Add(breakFor)
	if !b.allow(now) {
		t.Error("nobody may try")
	}
	if b.allow(now) {
		t.Error("two may try at once")
	}
	b.settle(now, true)
	if b.allow(now.Add(breakFor - 1)) {
		t.Error("a failed try does not keep it open")
	}
	now = now.Add(breakFor)
	if !b.allow(now) {
		t.Error("nobody may try again")
	}
	b.settle(now, false)
	for range 3 {
		if !b.allow(now) {
			t.Error("a try that was answered does not close it")
		}
	}
}

// Timeouts that are not in a row open nothing.
func TestBreakerForgets(t *testing.T) {
	var b breaker
	now := time.Unix(1_700_000_000, 0)
	for range 10 * breakAfter {
		b.settle(now, true)
		b.settle(now, false)
		if !b.allow(now) {
			t.Fatal("open")
		}
	}
}

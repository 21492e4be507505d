package client

import (
	"sync"
	"time"
)

// pacer spreads requests over time, for each key (a host) by what the last response said. It remembers at most limit keys.
type pacer struct {
	below   float64       // share of the quota under which requests are spread
	longest time.Duration // between two requests that are spread
	limit   int
	random  func() float64

	mu   sync.Mutex
	keys map[string]*pace
}

// pace is what is known of one key.
type pace struct {
	budget
	resetAt time.Time
	next    time.Time // when the next request may leave
	used    time.Time
	// sent numbers the requests; heard is the number of the one whose response gave the budget. Those after it are not in
	// the budget yet.
	sent, heard int64
}

// known tells whether the key's budget still holds.
func (p *pace) known(now time.Time) bool { return p.resetAt.After(now) }

// left is the budget without the requests that were sent since.
func (p *pace) left() int64 { return p.remaining - (p.sent - p.heard) }

// reserve takes the next place in the order of a key's requests. It returns the request's number and how long it is to wait.
// Where that would be longer than most, the request takes no place and goes at once.
func (p *pacer) reserve(key string, now time.Time, most time.Duration) (sent int64, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil {
		k = p.add(key, now)
	}
	k.used = now
	slot := now
	if k.next.After(slot) {
		slot = k.next
	}
	var spacing time.Duration
	if k.known(now) {
		switch {
		case k.remaining <= 0:
			// Others wait for the same moment, in other processes too: not all of them at once.
			free := k.resetAt.Add(time.Duration(p.random() * float64(min(k.resetAt.Sub(now)/10, time.Second))))
			if free.After(slot) {
				slot = free
			}
			if k.quota > 0 {
				spacing = k.window / time.Duration(k.quota)
			}
		case p.scarce(k):
			spacing = min(max(0, k.resetAt.Sub(slot))/time.Duration(max(1, k.left())), p.longest)
		}
	}
	if slot.Sub(now) <= most {
		wait = slot.Sub(now)
		k.next = slot.Add(spacing)
	}
	k.sent++
	return k.sent, wait
}

// scarce tells whether so little is left that requests are spread. Without a quota it cannot be known, and they are.
func (p *pacer) scarce(k *pace) bool {
	return k.quota <= 0 || float64(k.left()) < p.below*float64(k.quota)
}

// learn takes over what the response to a request said.
func (p *pacer) learn(key string, sent int64, now time.Time, b budget) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil { // forgotten meanwhile
		k = p.add(key, now)
		k.sent = sent
	}
	if sent < k.heard && k.known(now) {
		return // a later request was answered first, and its response knows better
	}
	k.budget, k.resetAt, k.heard = b, now.Add(b.reset), min(sent, k.sent)
	if k.remaining > 0 && !p.scarce(k) {
		k.next = time.Time{} // there is plenty again: nobody needs to queue behind those who were spread
	}
}

// add makes room for a key and remembers it. To forget a key is to forget how to be slow with it, no more.
func (p *pacer) add(key string, now time.Time) *pace {
	if len(p.keys) >= p.limit {
		var oldest string
		found := false
		for name, k := range p.keys {
			if !k.known(now) && !k.next.After(now) {
				delete(p.keys, name)
			} else if !found || k.used.Before(p.keys[oldest].used) {
				oldest, found = name, true
			}
		}
		if len(p.keys) >= p.limit {
			delete(p.keys, oldest)
		}
	}
	k := &pace{used: now}
	p.keys[key] = k
	return k
}

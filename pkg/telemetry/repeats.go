package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// repeatBurst lines with one message are logged in each repeatInterval.
	repeatBurst    = 20
	repeatInterval = 10 * time.Second
	// maxMessages bounds the messages that are remembered. Messages are constants of the code, so there are few.
	maxMessages = 1024
)

// LimitRepeats returns a handler that passes warnings and errors on to next, but of those with one message at most 20 in 10
// seconds. The first one after some were left out says in "left_out" how many. Lines below a warning always pass.
func LimitRepeats(next slog.Handler) slog.Handler {
	return &repeatLimiter{next: next, seen: &seenMessages{messages: make(map[string]*seenMessage)}}
}

type repeatLimiter struct {
	next slog.Handler
	seen *seenMessages // shared by all handlers that come from one
}

type seenMessages struct {
	mu       sync.Mutex
	messages map[string]*seenMessage
}

type seenMessage struct {
	since   time.Time // of the interval
	logged  int       // in it
	leftOut int       // since one was last logged
}

// may reports whether a line may be logged, and how many before it were not.
func (s *seenMessages) may(message string, now time.Time) (leftOut int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[message]
	if m == nil {
		if len(s.messages) >= maxMessages {
			clear(s.messages)
		}
		m = &seenMessage{since: now}
		s.messages[message] = m
	}
	if now.Sub(m.since) >= repeatInterval {
		m.since, m.logged = now, 0
	}
	if m.logged >= repeatBurst {
		m.leftOut++
		return 0, false
	}
	m.logged++
	leftOut, m.leftOut = m.leftOut, 0
	return leftOut, true
}

func (l *repeatLimiter) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

func (l *repeatLimiter) Handle(ctx context.Context, record slog.Record) error {
	if record.Level >= slog.LevelWarn {
		leftOut, ok := l.seen.may(record.Message, time.Now())
		if !ok {
			return nil
		}
		if leftOut > 0 {
			record = record.Clone()
			record.AddAttrs(slog.Int("left_out", leftOut))
		}
	}
	return l.next.Handle(ctx, record)
}

func (l *repeatLimiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &repeatLimiter{l.next.WithAttrs(attrs), l.seen}
}

func (l *repeatLimiter) WithGroup(name string) slog.Handler {
	return &repeatLimiter{l.next.WithGroup(name), l.seen}
}

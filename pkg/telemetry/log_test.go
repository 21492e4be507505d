package telemetry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestLevels(t *testing.T) {
	for name, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		if got, err := ParseLevel(name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := ParseLevel("loud"); err == nil || !strings.Contains(err.Error(), `"loud"`) {
		t.Errorf("got %v", err)
	}
	var log logBuffer
	var level slog.LevelVar
	logger := NewLogger(&log, LogOptions{Level: &level})
	logger.Debug("first")
	level.Set(slog.LevelDebug)
	logger.Debug("second")
	if text := log.String(); strings.Contains(text, "first") || !strings.Contains(text, "second") {
		t.Errorf("got %s", text)
	}
}

// Bytes that a client sends make no second line and no second attribute, in either format.
func TestHostileBytesInLogs(t *testing.T) {
	hostile := []string{"a\nlevel=ERROR msg=forged", "\x1b[2J", "\xff\xfe", `" msg="forged`, "\u2028", strings.Repeat("x", 10)}
	for _, asJSON := range []bool{false, true} {
		for _, text := range hostile {
			var log logBuffer
			logger := NewLogger(&log, LogOptions{JSON: asJSON})
			logger.Info("seen", "value", text, slog.Group("group", "inner", text), "any", fmt.Errorf("%s", text))
			line := log.String()
			if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\x1b\r\u2028") || !utf8.ValidString(line) {
				t.Errorf("%q is logged as %q", text, line)
			}
			if asJSON {
				var fields map[string]any
				if err := json.Unmarshal([]byte(line), &fields); err != nil || len(fields) != 6 {
					t.Errorf("%q: %v in %s", text, err, line)
				}
			} else if quoted := strconv.Quote(text); !strings.Contains(line, " value="+quoted) && quoted != `"`+text+`"` {
				t.Errorf("%q is logged as %s", text, line)
			}
		}
	}
}

func TestRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logBuffer
		logger := NewLogger(&log, LogOptions{})
		child := logger.With("component", "store").WithGroup("g") // shares what was seen
		for range 500 {
			logger.Warn("it hurts")
			child.Warn("it hurts", "a", 1)
			logger.Info("all is well")
		}
		logger.Error("something else")
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		count := func(part string) (n int) {
			for _, line := range lines {
				if strings.Contains(line, part) {
					n++
				}
			}
			return n
		}
		if count("it hurts") != repeatBurst || count("all is well") != 500 || count("something else") != 1 {
			t.Errorf("%d, %d and %d lines", count("it hurts"), count("all is well"), count("something else"))
		}
		time.Sleep(repeatInterval)
		logger.Warn("it hurts")
		if !strings.Contains(log.String(), "left_out=980") {
			t.Error("it does not say how many were left out")
		}
	})
}

func TestRememberedMessagesAreBounded(t *testing.T) {
	seen := &seenMessages{messages: make(map[string]*seenMessage)}
	for i := range 10 * maxMessages {
		if _, ok := seen.may(fmt.Sprint(i), time.Now()); !ok {
			t.Fatal("a new message was left out")
		}
		if len(seen.messages) > maxMessages {
			t.Fatalf("%d messages", len(seen.messages))
		}
	}
}

func TestIdentifiers(t *testing.T) {
	first, second := HashedIdentifiers([]byte("key")), HashedIdentifiers([]byte("other"))
	if first.Show("ann") != HashedIdentifiers([]byte("key")).Show("ann") {
		t.Error("one key gives two hashes")
	}
	if first.Show("ann") == second.Show("ann") || first.Show("ann") == first.Show("bob") {
		t.Error("hashes are equal")
	}
	// By another implementation: printf ann | openssl dgst -sha256 -hmac key
	if got := first.Show("ann"); got != "hash:9d77c3180ff81edf" {
		t.Errorf("got %s", got)
	}
	if one, another := HashedIdentifiers(nil), HashedIdentifiers(nil); one.Show("ann") == another.Show("ann") {
		t.Error("two processes without a key show the same hash")
	}
	plain := PlainIdentifiers()
	for value, want := range map[string]string{"ann": "ann", "\xff": "\uFFFD", strings.Repeat("x", 1000): strings.Repeat("x", maxShownBytes) + "..."} {
		if got := plain.Show(value); got != want {
			t.Errorf("%.20q is shown as %q", value, got)
		}
	}
}

func TestIdentifierAttr(t *testing.T) {
	var log logBuffer
	logger := NewLogger(&log, LogOptions{})
	identifiers := HashedIdentifiers([]byte("key"))
	logger.Info("seen", identifiers.Attr("user", "ann"))
	logger.Debug("seen", identifiers.Attr("user", "bob"))
	if want := "user=" + identifiers.Show("ann"); !strings.Contains(log.String(), want) || strings.Contains(log.String(), "ann ") {
		t.Errorf("got %s", log.String())
	}
}

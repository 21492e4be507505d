package telemetry

import (
	"fmt"
	"io"
	"log/slog"
)

// LogOptions choose what is logged and how. The zero value logs text from level info.
type LogOptions struct {
	// Level is the least that is logged. A *slog.LevelVar can be changed while the process runs. Nil: slog.LevelInfo.
	Level slog.Leveler
	// JSON writes one JSON object a line instead of key=value text.
	JSON bool
}

// NewLogger returns a logger that writes to w and logs warnings and errors that repeat themselves now and then only, see
// LimitRepeats.
func NewLogger(w io.Writer, options LogOptions) *slog.Logger {
	handlerOptions := &slog.HandlerOptions{Level: options.Level}
	var handler slog.Handler = slog.NewTextHandler(w, handlerOptions)
	if options.JSON {
		handler = slog.NewJSONHandler(w, handlerOptions)
	}
	return slog.New(LimitRepeats(handler))
}

// ParseLevel reads debug, info, warn or error.
func ParseLevel(name string) (slog.Level, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[name]
	if !ok {
		return 0, fmt.Errorf("unknown log level %q: write debug, info, warn or error", name)
	}
	return level, nil
}

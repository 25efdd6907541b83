package guard

import (
	"context"
	"log/slog"
)

// LogHandler returns a handler that passes records to h and recovers panics of h. This library also logs on its own
// goroutines, where such a panic would end the process.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{h} }

type logHandler struct{ slog.Handler }

// Enabled returns false if the Enabled method of the host's handler panics.
func (h logHandler) Enabled(ctx context.Context, l slog.Level) (enabled bool) {
	_ = Run(func() { enabled = h.Handler.Enabled(ctx, l) })
	return enabled
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	defer Recover(&err)
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

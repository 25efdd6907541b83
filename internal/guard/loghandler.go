package guard

import (
	"cmp"
	"context"
	"log/slog"
)

// LogHandler returns a handler that passes records to h. A panic or a call of runtime.Goexit in h has no other effect
// than that the record may be lost: this library also logs on its own goroutines, where it would end the process or the
// stream of blocks.
func LogHandler(h slog.Handler) slog.Handler { return logHandler{h} }

type logHandler struct{ slog.Handler }

// Enabled returns false if the Enabled method of the host's handler panics.
func (h logHandler) Enabled(ctx context.Context, l slog.Level) (enabled bool) {
	_ = Run(func() { enabled = h.Handler.Enabled(ctx, l) })
	return enabled
}

func (h logHandler) Handle(ctx context.Context, r slog.Record) (err error) {
	return cmp.Or(RunApart(func() { err = h.Handler.Handle(ctx, r) }), err)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler { return logHandler{h.Handler.WithGroup(name)} }

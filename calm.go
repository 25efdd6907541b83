package chaingql

import (
	"context"
	"fmt"
	"log/slog"
)

// calm is the host's slog.Handler, whose panic must not end the process: lines
// are logged on goroutines of this package's own.
type calm struct{ slog.Handler }

// Enabled implements slog.Handler. A line is lost where the host's panics.
func (c calm) Enabled(ctx context.Context, l slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return c.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (c calm) Handle(ctx context.Context, r slog.Record) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return c.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (c calm) WithAttrs(attrs []slog.Attr) slog.Handler { return calm{c.Handler.WithAttrs(attrs)} }

// WithGroup implements slog.Handler.
func (c calm) WithGroup(name string) slog.Handler { return calm{c.Handler.WithGroup(name)} }

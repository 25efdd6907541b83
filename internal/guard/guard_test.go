package guard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/internal/guard"
)

func TestRunApartReportsGoexitAndPanic(t *testing.T) {
	if err := guard.RunApart(func() {}); err != nil {
		t.Errorf("RunApart returned %v, want nil", err)
	}
	if err := guard.RunApart(runtime.Goexit); !errors.Is(err, guard.ErrGoexit) {
		t.Errorf("runtime.Goexit became %v, want ErrGoexit", err)
	}
	var p *guard.PanicError
	if err := guard.RunApart(func() { panic("boom") }); !errors.As(err, &p) || p.Value != "boom" {
		t.Errorf("the panic became %v", err)
	}
}

func TestRunReturnsPanicAsErrorWithStack(t *testing.T) {
	if err := guard.Run(func() {}); err != nil {
		t.Errorf("Run without a panic returned %v, want nil", err)
	}
	for _, value := range []any{"boom", io.EOF, nil} {
		err := fmt.Errorf("reading: %w", guard.Run(func() { panic(value) }))
		var p *guard.PanicError
		if !errors.As(err, &p) || value != nil && p.Value != value || !strings.Contains(err.Error(), "panic: ") {
			t.Errorf("panic(%v) became error %v, want a PanicError with its value", value, err)
		}
		if errors.Is(err, io.EOF) {
			t.Errorf("the error for panic(%v) wraps the value", value)
		}
		if stack := guard.Stack(err); stack.Key != "stack" || !strings.Contains(stack.Value.String(), "guard_test.go") {
			t.Errorf("panic(%v) has the stack attribute %q, want one that contains this file", value, stack)
		}
	}
	var none *guard.PanicError
	derefs := []func(){func() { panic("boom") }, func() { panic("boom") }, func() { _ = none.Stack }}
	places := map[string]bool{}
	for _, f := range append(derefs, derefs...) {
		place := guard.Place(guard.Run(f))
		if !strings.Contains(place, "guard_test.go:") {
			t.Errorf("the panic happened at %q, want a line of this file", place)
		}
		places[place] = true
	}
	if len(places) != 1 {
		t.Errorf("three panics on one line have the places %v", places)
	}
	if stack := guard.Stack(io.EOF); !stack.Equal(slog.Attr{}) {
		t.Errorf("an error without a panic has the stack attribute %q, want none", stack)
	}
}

// A Backend's error may contain a cursor of a client, which may be as long as a request.
func TestLoggedErrorsAreShortened(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	err := fmt.Errorf("read after %s: %w", strings.Repeat("\u00e9", 50_000), io.ErrUnexpectedEOF)
	log.Error("failed", guard.Error(err))
	line := out.String()
	if len(line) > 3<<10 || !strings.Contains(line, "read after ") || !strings.Contains(line, "unexpected EOF") {
		t.Errorf("an error of 100 kB was logged as %.100q, %d bytes, want less than 3 KiB with its begin and its cause",
			line, len(line))
	}
	if strings.ContainsRune(line, '\ufffd') {
		t.Errorf("a character was cut: %q", line)
	}
}

func TestRecoverKeepsErrorWithoutPanic(t *testing.T) {
	fails := func() (err error) {
		defer guard.Recover(&err)
		return io.EOF
	}
	if err := fails(); err != io.EOF {
		t.Errorf("Recover changed the error to %v, want io.EOF", err)
	}
}

// A panicking handler panics in the methods that its fields select.
type panicking struct {
	slog.Handler
	enabled, handle bool
}

func (p panicking) Enabled(ctx context.Context, l slog.Level) bool {
	if p.enabled {
		panic("enabled")
	}
	return p.Handler.Enabled(ctx, l)
}

func (p panicking) Handle(ctx context.Context, r slog.Record) error {
	if p.handle {
		panic("handle")
	}
	return p.Handler.Handle(ctx, r)
}

func (p panicking) WithAttrs(a []slog.Attr) slog.Handler {
	return panicking{p.Handler.WithAttrs(a), p.enabled, p.handle}
}

func (p panicking) WithGroup(name string) slog.Handler {
	return panicking{p.Handler.WithGroup(name), p.enabled, p.handle}
}

type goexiting struct{ slog.Handler }

func (goexiting) Handle(context.Context, slog.Record) error {
	runtime.Goexit()
	return nil
}

// The handler of a test may call FailNow if an error is logged.
func TestGoexitInLogHandlerDoesNotEndItsCaller(t *testing.T) {
	if err := guard.RunApart(func() {
		slog.New(guard.LogHandler(goexiting{slog.NewTextHandler(io.Discard, nil)})).Info("x")
	}); err != nil {
		t.Errorf("the goroutine that logs ended with %v", err)
	}
}

func TestLogHandlerRecoversPanics(t *testing.T) {
	var out bytes.Buffer
	for _, h := range []panicking{{enabled: true}, {handle: true}, {}} {
		out.Reset()
		h.Handler = slog.NewTextHandler(&out, nil)
		log := slog.New(guard.LogHandler(h))
		log.Info("plain")
		log.With("a", 1).WithGroup("g").Info("nested", "b", 2)
		if lines := strings.Count(out.String(), "\n"); h.enabled || h.handle {
			if lines != 0 {
				t.Errorf("a handler with %+v logged %q, want nothing", h, &out)
			}
		} else if lines != 2 || !strings.Contains(out.String(), "a=1 g.b=2") {
			t.Errorf("logged %q, want two lines with all attributes", &out)
		}
	}
}

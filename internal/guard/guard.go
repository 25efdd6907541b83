// Package guard protects the process. It turns panics of a host's code into errors, so that they end one call and not
// the process, keeps repeated failures from filling the log, and keeps clients from taking the last open files.
package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"
)

// A PanicError is the error for a recovered panic. It does not wrap the panic's value even if the value is an error: a
// panic is a bug in the host's code and must not be mistaken for an error such as ErrUnauthorized.
type PanicError struct {
	// Value is the value that was passed to panic.
	Value any

	// Stack is the stack trace of the goroutine that panicked.
	Stack []byte
}

// Error returns the panic's value as text. It does not include the stack trace: see [Stack].
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// New returns the error for a recovered panic. Call it in the deferred function that recovered the panic, because only
// there the stack trace is that of the panic.
func New(recovered any) *PanicError { return &PanicError{recovered, debug.Stack()} }

// Recover recovers a panic and stores it in *err. If there is no panic, *err does not change. Recover must be the
// deferred function itself: defer guard.Recover(&err).
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = New(p)
	}
}

// Run calls f. If f panics, Run returns the panic as a *PanicError; otherwise, it returns nil.
func Run(f func()) (err error) {
	defer Recover(&err)
	f()
	return nil
}

// ErrGoexit is returned by [RunApart] if the function called runtime.Goexit, as testing.T.FailNow does.
var ErrGoexit = errors.New("runtime.Goexit was called")

// RunApart is like Run, but it calls f on a goroutine of its own and waits for it. If f calls runtime.Goexit, which
// would end the caller's goroutine silently, RunApart returns [ErrGoexit].
func RunApart(f func()) error {
	ended := make(chan error, 1)
	go func() {
		err := ErrGoexit
		defer func() { ended <- err }()
		defer Recover(&err)
		f()
		err = nil
	}()
	return <-ended
}

// Place returns the file and the line at which the panic that err wraps happened. It returns "" if err wraps no panic.
func Place(err error) string {
	var p *PanicError
	if !errors.As(err, &p) {
		return ""
	}
	_, above, _ := strings.Cut(string(p.Stack), "\npanic(")
	for line := range strings.Lines(above) {
		// The frames of the runtime are between panic and the code that caused a runtime error.
		if file, ok := strings.CutPrefix(line, "\t"); ok && !strings.Contains(file, "/src/runtime/") {
			place, _, _ := strings.Cut(file, " +0x")
			return place
		}
	}
	return ""
}

// Error returns the log attribute "error". If err is nil, the attribute is empty, and log handlers omit it.
func Error(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.Any("error", logged{err})
}

// maxErrorText is the maximum size in bytes of the text of an error in the log. A Backend's error may contain a cursor
// or an argument of a client, which can be as long as a request.
const maxErrorText = 2 << 10

// A logged error has no MarshalJSON method, so it is text in every log format. If its text is too long, the middle is
// omitted: the cause is often at the end.
type logged struct{ error }

func (l logged) Unwrap() error { return l.error }

func (l logged) Error() string {
	text := l.error.Error()
	if len(text) <= maxErrorText {
		return text
	}
	half := maxErrorText / 2
	return fmt.Sprintf("%s... (%d bytes omitted) ...%s", strings.ToValidUTF8(text[:half], ""), len(text)-2*half,
		strings.ToValidUTF8(text[len(text)-half:], ""))
}

// Milliseconds returns a log attribute with a duration in milliseconds. Its name should end in _ms.
func Milliseconds(name string, d time.Duration) slog.Attr {
	return slog.Float64(name, float64(d)/float64(time.Millisecond))
}

// Stack returns a log attribute with the stack trace of the panic that err wraps. If err wraps no panic, the attribute
// is empty, and log handlers omit it.
func Stack(err error) slog.Attr {
	var p *PanicError
	if !errors.As(err, &p) {
		return slog.Attr{}
	}
	return slog.String("stack", string(p.Stack))
}

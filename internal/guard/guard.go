// Package guard turns panics of a host's code into errors, so that they end one call and not the process.
package guard

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
)

// A PanicError is a recovered panic. It does not wrap a value that is an error: a panic is a mistake in the host's code,
// never a verdict such as ErrUnauthorized.
type PanicError struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

// Error returns the panic's value. The stack is not part of it: see [Stack].
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// New returns the error for a recovered panic. Call it in the deferred function, where the stack is still that of the
// panic.
func New(recovered any) *PanicError { return &PanicError{recovered, debug.Stack()} }

// Recover stores a panic in *err. It must be deferred itself: defer guard.Recover(&err).
func Recover(err *error) {
	if p := recover(); p != nil {
		*err = New(p)
	}
}

// Run calls f and returns its panic as a *PanicError.
func Run(f func()) (err error) {
	defer Recover(&err)
	f()
	return nil
}

// Stack returns the log attribute with the stack of the panic that err wraps. It is empty, and so left out of the log, if
// err wraps none.
func Stack(err error) slog.Attr {
	var p *PanicError
	if !errors.As(err, &p) {
		return slog.Attr{}
	}
	return slog.String("stack", string(p.Stack))
}

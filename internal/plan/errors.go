package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/graphql-go/graphql/gqlerrors"

	"github.com/chaingql/chaingql/internal/guard"
)

// These are the values of extensions.code in an error.
const (
	CodeParse      = "GRAPHQL_PARSE_FAILED"
	CodeValidation = "GRAPHQL_VALIDATION_FAILED"
	CodeInput      = "BAD_USER_INPUT"
	CodeLimit      = "LIMIT_EXCEEDED"
	CodeInternal   = "INTERNAL_SERVER_ERROR"
)

// These constants limit the errors in a response, because a document may have thousands of errors.
const (
	maxErrors      = 10       // number of errors from parsing, validation and variables
	maxMessage     = 300      // length of one message in bytes
	maxFieldErrors = 64 << 10 // length of all field errors in bytes
	maskedMessage  = "Internal server error"
)

// An Error is a GraphQL error in the form in which the client receives it. A resolver returns an *Error if the
// client may see it. All other errors are masked.
type Error struct {
	// Message is the text of the error. The client receives at most 300 bytes of it.
	Message string
	// Code is the value of extensions.code.
	Code string
	// Locations are the positions in the document that caused the error.
	Locations []Location
	// Path identifies a field of the response by response names (string) and list indexes (int).
	Path []any
	// Details has additional extensions.
	Details map[string]string
	// Further has the extensions of a host's error as JSON, each after a comma.
	Further []byte
	// Limit is the name of the exceeded limit, or "". Only the host receives it.
	Limit string
}

func inputError(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Code: CodeInput}
}

func syntaxError(message string, at []Location) *Error {
	return &Error{Message: "Syntax Error: " + message, Code: CodeParse, Locations: at}
}

// A Location is a position in a document. Line and Column count from 1, and Column counts UTF-16 code units, as in
// graphql-js.
type Location struct{ Line, Column int }

// Error returns e.Message.
func (e *Error) Error() string { return e.Message }

// Errors are the errors of a document or of its variables. There is at least one, unless the value is nil.
type Errors []*Error

// Error returns the message of the first error.
func (es Errors) Error() string { return es[0].Message }

// AppendJSON appends the errors as a JSON array.
func (es Errors) AppendJSON(dst []byte) []byte {
	dst = append(dst, '[')
	for i, e := range es {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = e.AppendJSON(dst)
	}
	return append(dst, ']')
}

// AppendJSON appends the error as a JSON object.
func (e *Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"message":`...)
	dst = AppendString(dst, shorten(e.Message))
	if len(e.Locations) > 0 {
		dst = append(dst, `,"locations":[`...)
		for i, l := range e.Locations {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, `{"line":`...)
			dst = strconv.AppendInt(dst, int64(l.Line), 10)
			dst = append(dst, `,"column":`...)
			dst = strconv.AppendInt(dst, int64(l.Column), 10)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if len(e.Path) > 0 {
		dst = append(dst, `,"path":[`...)
		for i, p := range e.Path {
			if i > 0 {
				dst = append(dst, ',')
			}
			switch p := p.(type) {
			case string:
				dst = AppendString(dst, p)
			case int:
				dst = strconv.AppendInt(dst, int64(p), 10)
			}
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"extensions":{"code":`...)
	dst = AppendString(dst, e.Code)
	for _, k := range slices.Sorted(maps.Keys(e.Details)) {
		dst = append(dst, ',')
		dst = AppendString(dst, k)
		dst = append(dst, ':')
		dst = AppendString(dst, e.Details[k])
	}
	return append(append(dst, e.Further...), "}}"...)
}

// Mask returns the error that the client receives if a field of the host fails with err. If err wraps an *Error,
// Mask returns that. If err wraps an ExtendedError of graphql-go, Mask returns an error with its text and its
// extensions. Mask masks all other errors, and errors with methods that panic.
//
// Mask is not for errors of built-in fields, because these come from the Backend. See maskBuiltIn.
func (b *Bound) Mask(ctx context.Context, err error) *Error {
	return Mask(b.maskHosted).Once(ctx, err)
}

func (b *Bound) maskHosted(ctx context.Context, err error, report *Report) (e *Error) {
	defer b.maskPanic(ctx, err, report, &e)
	if known := knownError(err); known != nil {
		return known
	}
	var extended gqlerrors.ExtendedError
	if !errors.As(err, &extended) {
		return b.cache.mask(ctx, err, report)
	}
	e = &Error{Message: extended.Error(), Code: CodeInternal}
	extensions := extended.Extensions()
	for _, k := range slices.Sorted(maps.Keys(extensions)) {
		text, err := marshal(extensions[k])
		switch {
		case err != nil: // omit the extension
		case k != "code":
			e.Further = append(append(AppendString(append(e.Further, ','), k), ':'), text...)
		case json.Unmarshal(text, &e.Code) != nil: // not a string
			e.Code = CodeInternal
		}
	}
	return e
}

// maskBuiltIn returns the error that the client receives if a built-in field fails with err. If err wraps an
// *Error, maskBuiltIn returns that. It masks all other errors, even an ExtendedError of graphql-go.
func (b *Bound) maskBuiltIn(ctx context.Context, err error, report *Report) (e *Error) {
	defer b.maskPanic(ctx, err, report, &e)
	if known := knownError(err); known != nil {
		return known
	}
	return b.cache.mask(ctx, err, report)
}

// maskPanic recovers a panic of one of the methods of err and stores the masked panic in e. It must be deferred.
func (b *Bound) maskPanic(ctx context.Context, err error, report *Report, e **Error) {
	if p := recover(); p != nil {
		err = fmt.Errorf("a method of an error of type %T panicked: %w", err, guard.New(p))
		*e = b.cache.mask(ctx, err, report)
	}
}

// knownError returns the *Error that err wraps, or nil.
func knownError(err error) *Error {
	var known *Error
	errors.As(err, &known)
	return known
}

// shorten cuts s between two characters so that it has at most maxMessage bytes, including "...".
func shorten(s string) string {
	const dots = "..."
	if len(s) <= maxMessage {
		return s
	}
	cut := maxMessage - len(dots)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + dots
}

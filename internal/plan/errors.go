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

// Codes are the values of an error's extensions.code.
const (
	CodeParse      = "GRAPHQL_PARSE_FAILED"
	CodeValidation = "GRAPHQL_VALIDATION_FAILED"
	CodeInput      = "BAD_USER_INPUT"
	CodeLimit      = "LIMIT_EXCEEDED"
	CodeInternal   = "INTERNAL_SERVER_ERROR"
)

// The errors in a response are limited: a document may have thousands.
const (
	maxErrors      = 10       // errors of parsing, validation and variables
	maxMessage     = 300      // bytes of one message
	maxFieldErrors = 64 << 10 // bytes of all field errors
	maskedMessage  = "Internal server error"
)

// An Error is a GraphQL error as it is sent to the client. A resolver returns one if
// the client may see its error; every other error is masked.
type Error struct {
	Message   string
	Code      string // extensions.code
	Locations []Location
	Path      []any             // response names (string) and list indexes (int)
	Details   map[string]string // more extensions
	Further   []byte            // extensions of a host's error as JSON, each after a comma
	Limit     string            // the name of the exceeded limit, for the host; not sent
}

func inputError(format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Code: CodeInput}
}

func syntaxError(message string, at []Location) *Error {
	return &Error{Message: "Syntax Error: " + message, Code: CodeParse, Locations: at}
}

// A Location is a position in a document. Line and Column start with one.
type Location struct{ Line, Column int }

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Errors are the errors of a document or of its variables. They are never empty.
type Errors []*Error

// Error returns the first message.
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
	keys := make([]string, 0, len(e.Details))
	for k := range e.Details {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		dst = append(dst, ',')
		dst = AppendString(dst, k)
		dst = append(dst, ':')
		dst = AppendString(dst, e.Details[k])
	}
	return append(append(dst, e.Further...), "}}"...)
}

// Mask returns the error to send to the client for an error of a host's field: err
// itself if it is an *Error, or one with err's text and extensions if it is an
// ExtendedError of graphql-go. It masks every other error, and one whose methods
// panic. Errors of built-in fields come from the Backend: use maskBuiltIn for them.
func (b *Bound) Mask(ctx context.Context, err error) (e *Error) {
	defer b.maskPanic(ctx, err, &e)
	if known := knownError(err); known != nil {
		return known
	}
	var extended gqlerrors.ExtendedError
	if !errors.As(err, &extended) {
		return b.cache.mask(ctx, err)
	}
	e = &Error{Message: extended.Error(), Code: CodeInternal}
	extensions := extended.Extensions()
	for _, k := range slices.Sorted(maps.Keys(extensions)) {
		text, err := marshal(extensions[k])
		switch {
		case err != nil: // omit it
		case k != "code":
			e.Further = append(append(AppendString(append(e.Further, ','), k), ':'), text...)
		case json.Unmarshal(text, &e.Code) != nil: // not a string
			e.Code = CodeInternal
		}
	}
	return e
}

// maskBuiltIn returns the error to send to the client for an error of a built-in
// field: err itself if it is an *Error. It masks every other error, also an
// ExtendedError.
func (b *Bound) maskBuiltIn(ctx context.Context, err error) (e *Error) {
	defer b.maskPanic(ctx, err, &e)
	if known := knownError(err); known != nil {
		return known
	}
	return b.cache.mask(ctx, err)
}

// maskPanic masks the panic of a method of err. It must be deferred.
func (b *Bound) maskPanic(ctx context.Context, err error, e **Error) {
	if p := recover(); p != nil {
		*e = b.cache.mask(ctx, fmt.Errorf("error of type %T: %w", err, guard.New(p)))
	}
}

// knownError returns the *Error in err's tree, or nil.
func knownError(err error) *Error {
	var known *Error
	errors.As(err, &known)
	return known
}

// shorten cuts a message between characters so that it has at most maxMessage bytes.
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

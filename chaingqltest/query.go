package chaingqltest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// NewHandler returns a [chaingql.Handler] that is shut down at the end of the test. opts may be nil. If opts has no
// Logger, the Handler logs to the output of the test.
func NewHandler(t testing.TB, b chaingql.Backend, opts *chaingql.Options) *chaingql.Handler {
	t.Helper()
	var own chaingql.Options
	if opts != nil {
		own = *opts
	}
	if own.Logger == nil {
		own.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	h := chaingql.New(b, &own)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("chaingqltest: %v", err)
		}
	})
	return h
}

// As returns a handler that passes requests to h as if another client had sent them. It changes the path of a request
// to /<project>/graphql, or to /graphql if project is empty. If secret is not empty, it adds the secret as Basic
// credentials.
func As(h http.Handler, project, secret string) http.Handler {
	path := "/graphql"
	if project != "" {
		path = "/" + url.PathEscape(project) + path
	}
	target, err := url.ParseRequestURI(path)
	if err != nil {
		panic("chaingqltest: As: " + err.Error()) // cannot happen with an escaped project
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		own := r.Clone(r.Context())
		own.URL.Path, own.URL.RawPath, own.RequestURI = target.Path, target.RawPath, path
		if secret != "" {
			own.SetBasicAuth("", secret)
		}
		h.ServeHTTP(w, own)
	})
}

// Data is the data of a response as JSON, without spaces and with its keys in the order of the document. Compare it
// with a string, or decode it with [Data.Decode]. It is empty if the response has no data.
type Data string

// Decode decodes the data into the value that v points to. The test fails if the type of that value does not fit the
// data, or if a struct has no field for a key.
func (d Data) Decode(t testing.TB, v any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(d)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		t.Fatalf("chaingqltest: decode %s: %v", d, err)
	}
}

// Errors holds the errors of a response, as the client receives them.
type Errors []Error

// An Error is one error of a response.
type Error struct {
	// Message is the text of the error for people.
	Message string
	// Path contains the keys and indexes that lead to the field that failed. It is nil if the whole request failed.
	Path []any
	// Extensions contains details by name. Its "code" is always a string.
	Extensions map[string]any
}

// Error returns the messages with their codes and paths.
func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = fmt.Sprintf("%s (%v)", one.Message, one.Extensions["code"])
		if one.Path != nil {
			texts[i] += fmt.Sprintf(" at %v", one.Path)
		}
	}
	return strings.Join(texts, "; ")
}

// Code returns the code of the first error of a response, such as "UNAUTHENTICATED". It returns "" if err is nil or
// wraps no [Errors].
func Code(err error) string {
	var errs Errors
	if !errors.As(err, &errs) || len(errs) == 0 {
		return ""
	}
	code, _ := errs[0].Extensions["code"].(string)
	return code
}

// Query sends a query and returns the data of the response. variables may be nil. The test fails if the response has
// errors.
func Query(t testing.TB, h http.Handler, document string, variables map[string]any) Data {
	t.Helper()
	data, err := Do(t, h, document, variables)
	if err != nil {
		t.Fatalf("chaingqltest: %s: %v", short(document), err)
	}
	return data
}

// Do sends a query and returns the data and the errors of the response. variables may be nil. The returned error is nil
// or [Errors]. If only some of the fields failed, both the data and the error are set. The test fails if the response
// is not from a [chaingql.Handler], for example because the mux does not have the path.
func Do(t testing.TB, h http.Handler, document string, variables map[string]any) (Data, error) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, newRequest(t, document, variables))
	data, err := parse(w.Body.Bytes())
	if errors.Is(err, errForeign) {
		t.Fatalf("chaingqltest: %s: %s", short(document), foreign(w.Code, w.Body.Bytes()))
	}
	return data, err
}

// newRequest returns a POST request that sends a document.
func newRequest(t testing.TB, document string, variables map[string]any) *http.Request {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		t.Fatalf("chaingqltest: variables: %v", err)
	}
	r := httptest.NewRequest(http.MethodPost, "/demo/graphql", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

var errForeign = errors.New("not a GraphQL response")

// parse returns the data and the errors of a response.
func parse(response []byte) (Data, error) {
	var fields struct {
		Data   json.RawMessage
		Errors Errors
	}
	if err := json.Unmarshal(response, &fields); err != nil || fields.Data == nil && fields.Errors == nil {
		return "", errForeign
	}
	data := Data(fields.Data)
	if data == "null" {
		data = ""
	}
	if fields.Errors != nil {
		return data, fields.Errors
	}
	return data, nil
}

func foreign(status int, body []byte) string {
	return fmt.Sprintf("response with status %d is not from a chaingql.Handler: %.200q; does the path exist? See As",
		status, body)
}

// short returns a document as one line, truncated to 80 bytes.
func short(document string) string {
	line := strings.Join(strings.Fields(document), " ")
	if len(line) > 80 {
		line = line[:80] + "..."
	}
	return line
}

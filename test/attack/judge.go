package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A responseError holds the fields that every GraphQL error must have.
type responseError struct {
	Message    string
	Extensions struct{ Code *string }
}

// internals lists parts of texts that reveal details of the program, such as source lines, and of "Did
// you mean" suggestions. No error message may contain one.
var internals = []string{".go:", "goroutine ", "panic", "runtime error", "id you mean", "memchain", "gqlparser"}

// revealsInternals reports whether text contains one of the internals. It is much faster than a regular expression:
// clients that are too slow are disconnected.
func revealsInternals(text string) bool {
	return slices.ContainsFunc(internals, func(s string) bool { return strings.Contains(text, s) })
}

// judge returns the outcome of a response and checks the rules that every response must follow: it is
// not a server error other than 503, and each error in it is a short GraphQL error with a code.
func judge(resp *http.Response, content []byte) (outcome, error) {
	status := fmt.Sprint(resp.StatusCode)
	media := resp.Header.Get("Content-Type")
	at := fmt.Sprintf("%s, %s: %.200q", status, media, content)
	switch {
	case resp.StatusCode == http.StatusNotImplemented || resp.StatusCode == http.StatusHTTPVersionNotSupported:
		return outcome{"net/http", status}, nil
	case resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable:
		return outcome{}, fmt.Errorf("server error: %s", at)
	case strings.HasPrefix(media, "text/plain"), strings.HasPrefix(media, "text/html"),
		media == "" && resp.StatusCode >= 300 && len(content) == 0: // from net/http or its mux
		return outcome{"net/http", status + " " + resp.Header.Get("Location")}, nil
	case len(content) == 0:
		return outcome{"answered", status + " empty"}, nil
	case strings.HasPrefix(media, "text/event-stream"), strings.HasPrefix(media, "multipart/mixed"):
		return judgeEvents(content)
	case !strings.HasPrefix(media, "application/json") && !strings.HasPrefix(media,
		"application/graphql-response+json"):
		return outcome{}, fmt.Errorf("response is neither JSON nor an event stream: %s", at)
	}
	for status, header := range map[int]string{401: "WWW-Authenticate", 405: "Allow", 429: "Retry-After",
		503: "Retry-After"} {
		if resp.StatusCode == status && resp.Header.Get(header) == "" {
			return outcome{}, fmt.Errorf("response has no %s header: %s", header, at)
		}
	}
	o, err := judgeJSON(content)
	if err == nil && resp.StatusCode >= 400 && o.class == "answered" {
		err = fmt.Errorf("response has an error status but no errors: %s", at)
	}
	o.text = status + " " + o.text
	return o, err
}

// judgeJSON judges one GraphQL response.
func judgeJSON(content []byte) (outcome, error) {
	var keys map[string]json.RawMessage
	var errs []responseError
	if err := json.Unmarshal(content, &keys); err != nil {
		return outcome{}, fmt.Errorf("response is not a JSON object: %w: %.200q", err, content)
	}
	if keys["errors"] == nil {
		if keys["data"] == nil {
			return outcome{}, fmt.Errorf("response has neither data nor errors: %.200q", content)
		}
		return outcome{class: "answered"}, nil
	}
	if err := json.Unmarshal(keys["errors"], &errs); err != nil {
		return outcome{}, fmt.Errorf("the value of \"errors\" is not a list of errors: %w: %.200q", err, content)
	}
	if len(errs) == 0 {
		return outcome{}, fmt.Errorf("the list of errors is empty: %.200q", content)
	}
	o, err := judgeErrors(errs)
	switch {
	case err != nil:
		return o, fmt.Errorf("%w: %.300q", err, content)
	case keys["data"] == nil && (len(errs) > 10 || len(content) > 64<<10):
		return o, fmt.Errorf("error response has %d errors and %d bytes, want at most 10 and 64 KiB", len(errs),
			len(content))
	case len(keys["errors"]) > 70<<10:
		return o, fmt.Errorf("list of field errors has %d bytes, want at most 70 KiB", len(keys["errors"]))
	}
	return o, nil
}

// judgeErrors checks all errors of a response and returns the outcome that the first error describes.
func judgeErrors(errs []responseError) (outcome, error) {
	for _, e := range errs {
		switch {
		case e.Message == "" || e.Extensions.Code == nil || *e.Extensions.Code == "":
			return outcome{}, errors.New("an error has no message or no code")
		case len(e.Message) > 300:
			return outcome{}, fmt.Errorf("an error message has %d bytes, want at most 300", len(e.Message))
		case *e.Extensions.Code == "INTERNAL_SERVER_ERROR":
			return outcome{}, errors.New("an error has the code INTERNAL_SERVER_ERROR")
		case revealsInternals(e.Message):
			return outcome{}, fmt.Errorf("an error message reveals internals: %q", e.Message)
		}
	}
	return outcome{*errs[0].Extensions.Code, errs[0].Message}, nil
}

// eventData returns the response in one line of an event stream or of a multipart stream, or "".
func eventData(line string) string {
	line = strings.TrimSpace(line)
	if data, ok := strings.CutPrefix(line, "data:"); ok {
		return strings.TrimSpace(data)
	}
	if errs, ok := strings.CutPrefix(line, `{"payload":null,`); ok {
		return "{" + errs
	}
	data, _ := strings.CutPrefix(line, `{"payload":`)
	if data == line {
		return ""
	}
	return strings.TrimSuffix(data, "}")
}

// judgeEvents returns the outcome of the first event of a stream.
func judgeEvents(content []byte) (outcome, error) {
	for line := range strings.Lines(string(content)) {
		if data := eventData(line); data != "" {
			o, err := judgeJSON([]byte(data))
			o.text = "events " + o.text
			return o, err
		}
	}
	return outcome{"answered", "no events"}, nil
}

package gqlws

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// connectionError returns the error with which a connection of the legacy protocol ends. It covers all streams: if a
// stream ended by itself, the code is that of the last such stream, and the cursor is the lowest one, so that no stream
// misses anything. If there are several streams, the extension "operations" has the code and the cursor of each.
func connectionError(e ending) json.RawMessage {
	last := e.err
	switch e.cause {
	case causeShutdown:
		last = encodeError(messageShutdown, codeRetry)
	case causeExpired:
		last = encodeError(messageExpired, codeRetry) // clients treat UNAUTHENTICATED as final
	}
	if len(e.resumePoints) == 0 {
		return last
	}
	var all []resumeEntry
	lowest := ""
	for _, s := range e.resumePoints {
		p := resumeEntry{ID: s.id.raw, Code: codeRetry, Cursor: s.cursor}
		if p.ID == nil {
			p.ID = json.RawMessage("null")
		}
		if s.err != nil {
			last = s.err.Errors[0] // use the last: the first may be of a lost stream, the others have gaps
			own := decodeError(last)
			p.Code, p.Cursor = cmp.Or(own.text("code"), codeRetry), own.text("cursor")
		}
		if p.Cursor != "" && (lowest == "" || p.Cursor < lowest) { // a stream without a cursor cannot be resumed
			lowest = p.Cursor
		}
		all = append(all, p)
	}
	err := decodeError(last)
	delete(err.Extensions, "cursor")
	if lowest != "" {
		err.set("cursor", lowest)
	}
	if len(all) > 1 {
		err.set("operations", all)
	}
	return encode(err)
}

// A resumeEntry is the JSON form of a resumePoint.
type resumeEntry struct {
	ID     json.RawMessage `json:"id"`
	Code   string          `json:"code"`
	Cursor string          `json:"cursor,omitempty"`
}

// A graphqlError is a decoded GraphQL error.
type graphqlError struct {
	Message    string                     `json:"message"`
	Locations  json.RawMessage            `json:"locations,omitempty"`
	Path       json.RawMessage            `json:"path,omitempty"`
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

func decodeError(raw json.RawMessage) (e graphqlError) {
	_ = json.Unmarshal(raw, &e) // errors of the Session are valid JSON
	return e
}

// text returns an extension that is a string, or "" if there is none.
func (e *graphqlError) text(name string) (s string) {
	_ = json.Unmarshal(e.Extensions[name], &s)
	return s
}

func (e *graphqlError) set(name string, value any) {
	if e.Extensions == nil {
		e.Extensions = make(map[string]json.RawMessage)
	}
	e.Extensions[name] = encode(value)
}

// encode returns v as JSON and does not escape "<", ">" and "&".
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and JSON always encode
	}
	return bytes.TrimSpace(b.Bytes())
}

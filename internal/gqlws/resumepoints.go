package gqlws

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// connectionError returns the error with which a connection of the legacy protocol ends. The error covers all streams:
// its cursor is the lowest one, so that no stream misses anything if all of them resume from it. If streams have ended
// with their own errors, the code is that of the last such stream. If there are several streams, the extension
// "operations" contains the code and the cursor of each stream.
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
			// Use the last error: the first one may report a lost stream, but later ones report gaps.
			last = s.err.Errors[0]
			own := decodeError(last)
			p.Code, p.Cursor = cmp.Or(own.text("code"), codeRetry), own.text("cursor")
		}
		// Ignore a stream without a cursor, because it cannot be resumed.
		if p.Cursor != "" && (lowest == "" || p.Cursor < lowest) {
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

// text returns the extension with the given name if it is a string, and "" otherwise.
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

// encode returns v as JSON without escaping "<", ">" and "&".
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and JSON always encode
	}
	return bytes.TrimSpace(b.Bytes())
}

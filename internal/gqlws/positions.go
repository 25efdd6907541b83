package gqlws

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// connectionError returns the error with which a connection of the legacy
// protocol ends. It speaks for all streams: the code is that of a stream that
// ended by itself, if there is one, and the cursor is the lowest, from which none
// of them misses anything. If there are several streams, the extension
// "operations" has the code and the cursor of each.
func connectionError(e ending) json.RawMessage {
	told := e.err
	switch e.cause {
	case causeShutdown:
		told = encodeError(sayShutdown, codeRetry)
	case causeExpired:
		told = encodeError(sayExpired, codeRetry) // UNAUTHENTICATED would be final
	}
	if len(e.standings) == 0 {
		return told
	}
	var all []position
	lowest := ""
	for _, s := range e.standings {
		p := position{ID: s.id.echo, Code: codeRetry, Cursor: s.cursor}
		if p.ID == nil {
			p.ID = json.RawMessage("null")
		}
		if s.own != nil {
			told = s.own.Errors[0] // the last one: the first may be of the stream that is lost, the others have gaps
			own := decodeError(told)
			p.Code, p.Cursor = cmp.Or(own.text("code"), codeRetry), own.text("cursor")
		}
		if p.Cursor != "" && (lowest == "" || p.Cursor < lowest) { // a stream without a cursor cannot be resumed
			lowest = p.Cursor
		}
		all = append(all, p)
	}
	err := decodeError(told)
	delete(err.Extensions, "cursor")
	if lowest != "" {
		err.set("cursor", lowest)
	}
	if len(all) > 1 {
		err.set("operations", all)
	}
	return encode(err)
}

// A position is where an operation was when its connection ended.
type position struct {
	ID     json.RawMessage `json:"id"`
	Code   string          `json:"code"`
	Cursor string          `json:"cursor,omitempty"`
}

// A graphqlError is an encoded GraphQL error taken apart.
type graphqlError struct {
	Message    string                     `json:"message"`
	Locations  json.RawMessage            `json:"locations,omitempty"`
	Path       json.RawMessage            `json:"path,omitempty"`
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`
}

func decodeError(raw json.RawMessage) (e graphqlError) {
	_ = json.Unmarshal(raw, &e) // the Session's own, which is one
	return e
}

// text returns an extension that is a string, else "".
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

// encode leaves "<", ">" and "&" as they are.
func encode(v any) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // strings and JSON always encode
	}
	return bytes.TrimSpace(b.Bytes())
}

package gqlsse

import (
	"net/http"
	"strings"
)

// A Codec is the format in which a stream is sent.
type Codec struct {
	contentType string
	start       string // sent first, so that the client notices that it is connected
	heartbeat   string
	complete    string

	// An event consists of head, its id if it has one, data, the response, and tail.
	head, id, data, tail string

	// failure replaces head and data of an event that ends the stream although a retry can succeed. The brace that
	// opens the response is part of failure, and the one that closes it is part of the response. After such an event,
	// failed is sent. If failure is "", the event is like all others.
	failure, failed string
}

// Events is the format of event streams, as the library graphql-sse defines it: a client reconnects unless it receives
// complete. The event complete needs a data field, even an empty one, because the EventSource of browsers ignores
// events without data fields.
var Events = &Codec{
	contentType: "text/event-stream; charset=utf-8",
	start:       ":\n\n",
	heartbeat:   ":\n\n",
	complete:    "event: complete\ndata:\n\n",
	head:        "event: next\n", id: "id: ", data: "data: ", tail: "\n\n",
}

// Multipart is the format of Apollo's multipart protocol for subscriptions. Its parts have no ids. Each part is
// followed at once by the boundary of the next one, because clients process a part only when they have received that
// boundary.
var Multipart = &Codec{
	contentType: `multipart/mixed;boundary="graphql";subscriptionSpec=1.0`,
	start:       boundary + partHeader + "{}" + boundary,
	heartbeat:   partHeader + "{}" + boundary,
	complete:    "--\r\n",
	head:        partHeader, data: `{"payload":`, tail: "}" + boundary,
	failure: partHeader + `{"payload":null,`, failed: boundary + "--\r\n",
}

// JSON contains no line breaks outside of its strings, and none within them, so no response contains the boundary.
const (
	boundary   = "\r\n--graphql"
	partHeader = "\r\nContent-Type: application/json\r\n\r\n"
)

// SetHeader sets the header fields of a stream.
func (c *Codec) SetHeader(h http.Header) {
	h.Set("Content-Type", c.contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // otherwise nginx would buffer the events
	h.Set("X-Content-Type-Options", "nosniff")
}

// AppendPrefix appends the bytes before the JSON response if a query is answered with a stream.
func (c *Codec) AppendPrefix(dst []byte) []byte {
	return append(append(append(dst, c.start...), c.head...), c.data...)
}

// AppendSuffix appends the bytes after the JSON response if a query is answered with a stream.
func (c *Codec) AppendSuffix(dst []byte) []byte { return append(append(dst, c.tail...), c.complete...) }

func (c *Codec) appendEvent(dst []byte, e Event) []byte {
	dst = c.appendID(append(dst, c.head...), e.ID)
	return append(append(append(dst, c.data...), e.Data...), c.tail...)
}

// appendPosition appends the position of the stream. An EventSource remembers an id without data, and dispatches no
// event for it (WHATWG HTML 9.2.6).
func (c *Codec) appendPosition(dst []byte, o *Options) []byte {
	if o.Position == nil {
		return dst
	}
	if line := c.appendID(nil, o.Position()); line != nil {
		dst = append(append(dst, line...), '\n')
	}
	return dst
}

// appendID appends the line with an id, if the format has ids and id is one.
func (c *Codec) appendID(dst []byte, id string) []byte {
	// The cursor of a backend must not add lines to the event.
	if c.id == "" || id == "" || strings.ContainsAny(id, "\r\n\x00") {
		return dst
	}
	return append(append(append(dst, c.id...), id...), '\n')
}

// appendEnd appends the last event and, if the client should not reconnect, the end of the stream.
func (c *Codec) appendEnd(dst []byte, e *End) []byte {
	switch {
	case e.Final:
		return append(c.appendEvent(dst, Event{ID: e.ID, Data: e.Data}), c.complete...)
	case c.failure == "":
		return c.appendEvent(dst, Event{ID: e.ID, Data: e.Data})
	}
	return append(append(append(dst, c.failure...), e.Data[1:]...), c.failed...)
}

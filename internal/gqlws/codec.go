package gqlws

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/strictjson"
)

// A codec implements one subprotocol. It decodes messages from the peer, appends messages for the peer to a buffer, and
// reports how strict the protocol is. A codec has no state, so that all connections can share it. Each connection
// itself checks the order of its messages.
//
// Each append method appends one message to b. If the protocol has no such message, it appends nothing.
type codec interface {
	// name returns the name of the subprotocol, as in the Sec-WebSocket-Protocol header.
	name() string

	// strict reports whether a protocol violation ends the connection. Violations are a missing or repeated
	// connection_init, an operation id that is in use, and a malformed frame.
	strict() bool

	// initTimeout returns the maximum time until the peer sends connection_init. If the protocol is not strict, the
	// time does not run while the peer has a running operation.
	initTimeout(o *Options) time.Duration

	// frequentKeepAlives reports when keep-alives are sent. If it is true, the first one follows the ack immediately,
	// the second one follows Options.KeepAliveInterval later, and all others follow at a fifth of that interval. If it
	// is false, one keep-alive is sent every Options.KeepAliveInterval after the ack.
	frequentKeepAlives() bool

	// lossEndsConnection reports whether the loss of one stream ends the connection. This is necessary if clients treat
	// an operation's error as final and therefore do not subscribe again.
	lossEndsConnection() bool

	// decode returns the message that frame contains. frame must be valid UTF-8. If frame is not a valid message, the
	// kind of the returned message is kindMalformed or kindInvalid.
	decode(frame []byte) message

	appendAck(b []byte) []byte
	appendKeepAlive(b []byte) []byte
	appendPong(b, payload []byte) []byte
	appendData(b []byte, id operationID, payload []byte) []byte
	appendErrors(b []byte, id operationID, errs []json.RawMessage) []byte
	appendComplete(b []byte, id operationID) []byte
	// appendStopped appends the response to the peer's stop or complete message.
	appendStopped(b []byte, id operationID) []byte
	// appendResumePoint appends the position or the error of a stream that is running when the server ends the
	// connection. It appends nothing if the message of closing covers all streams.
	appendResumePoint(b []byte, e ending, s resumePoint) []byte

	// closing appends the last message before the close frame to b, if the protocol has one, and returns b with the
	// code and the reason of the close frame. e contains the resume points of all streams.
	closing(b []byte, e ending) (frame []byte, code websocket.StatusCode, reason string)
}

type kind int

const (
	kindMalformed kind = iota // not a message of the protocol
	kindInvalid               // unknown type or invalid id
	kindInit
	kindStart
	kindStop
	kindTerminate
	kindPing
	kindPong
)

// A message is a decoded message from the peer.
type message struct {
	kind    kind
	id      operationID
	payload []byte // a part of the frame; nil if absent or null
	reply   []byte // error response if kind is kindMalformed or kindInvalid; may be nil
	reason  string // reason for the close frame if kind is kindMalformed
	limit   string // limit that the message exceeds; empty if there is none
}

// parts holds the fields of a message, as JSON. If a key is repeated, its last value counts, as for JSON.parse. A field
// that is absent is nil.
type parts struct {
	id, payload json.RawMessage // a payload of null is nil, too
	kind        string          // the field type; empty if it is not a string
}

// split finds the parts of a message. It reports false if the frame is not a JSON object. It does not store other
// fields, because a peer may send thousands of them, and storing them takes several times as long as reading them.
func split(frame []byte) (p parts, ok bool) {
	var kind []byte
	err := strictjson.Fields(frame, func(key, value []byte) {
		switch string(key) {
		case "id":
			p.id = value
		case "type":
			kind = value
		case "payload":
			p.payload = nonNull(value)
		}
	})
	if err != nil {
		return parts{}, false
	}
	_ = json.Unmarshal(kind, &p.kind)
	return p, true
}

// An operationID is the id of an operation. Most peers send a string, but some send a number or no id. Responses
// contain the id exactly as received. Two ids are equal if their decoded texts are equal.
type operationID struct {
	raw []byte // raw JSON; nil if absent
	key string // map key: "" if the id is absent, "null" if it is null, otherwise "=" and the decoded text
}

func (id operationID) text() string { return strings.TrimPrefix(id.key, "=") }

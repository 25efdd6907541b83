package gqlws

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// A codec implements one subprotocol: it decodes messages, appends frames, and reports how strict the protocol is. It
// has no state, and all connections share it; the connection checks the order of messages.
//
// Each append method adds one message to b, or nothing if the protocol has no such message.
type codec interface {
	// name returns the subprotocol as it is negotiated.
	name() string

	// strict reports whether a violation ends the connection: a missing or second init, an id in use, a malformed
	// frame.
	strict() bool

	// initTimeout returns the maximum time until the peer's init or, if the protocol is not strict, the maximum time
	// without init and without an operation.
	initTimeout(o *Options) time.Duration

	// frequentKeepAlives reports whether the first keep-alive follows the ack immediately, the second one
	// Options.KeepAliveInterval later, and all others at a fifth of that interval. If it is false, keep-alives are sent every
	// Options.KeepAliveInterval, the first one that time after the ack.
	frequentKeepAlives() bool

	// lossEndsConnection reports whether a lost stream ends the connection, because clients treat an operation's
	// error as final.
	lossEndsConnection() bool

	// decode returns the message in a frame, which must be valid UTF-8. It reports an invalid frame as kindMalformed or
	// kindInvalid.
	decode(frame []byte) message

	appendAck(b []byte) []byte
	appendKeepAlive(b []byte) []byte
	appendPong(b, payload []byte) []byte
	appendData(b []byte, id operationID, payload []byte) []byte
	appendErrors(b []byte, id operationID, errs []json.RawMessage) []byte
	appendComplete(b []byte, id operationID) []byte
	// appendStopped adds the response to the peer's stop.
	appendStopped(b []byte, id operationID) []byte
	// appendResumePoint adds the position or error of a running stream when the server ends the connection. It adds
	// nothing if the message of closing reports all streams.
	appendResumePoint(b []byte, e ending, s resumePoint) []byte

	// closing returns the last message before the close frame, which may be empty, and the code and reason of the
	// close frame. e has the resume points of all streams.
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

// A message is a decoded message of the peer.
type message struct {
	kind    kind
	id      operationID
	payload []byte // raw JSON, a copy; nil if absent or null
	reply   []byte // malformed, invalid: the error response; nil if there is none
	reason  string // malformed: reason in the close frame, if it ends the connection
	limit   string // malformed, invalid: the exceeded limit, if any
}

// An operationID is the id of an operation. Peers usually send a string, but some send a number or no id. Responses
// repeat the id as received. Ids with equal text are the same id.
type operationID struct {
	raw []byte // raw JSON; nil if absent
	key string // map key: "" if absent, "null", or "=" and the text
}

func (id operationID) text() string { return strings.TrimPrefix(id.key, "=") }

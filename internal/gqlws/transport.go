package gqlws

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/strictjson"
)

// These are the close codes of graphql-transport-ws. Code 4406 (subprotocol not acceptable) is missing, because the
// server refuses such a handshake before the upgrade.
const (
	codeMalformed   websocket.StatusCode = 4400
	codeNoInit      websocket.StatusCode = 4401
	codeForbidden   websocket.StatusCode = 4403
	codeInitTimeout websocket.StatusCode = 4408
	codeIDInUse     websocket.StatusCode = 4409
	codeSecondInit  websocket.StatusCode = 4429
	codeInternal    websocket.StatusCode = 4500
)

// maxReason is the maximum length in bytes of the reason in a close frame (RFC 6455, 5.5).
const maxReason = 123

// transport is the codec of graphql-transport-ws, the newer subprotocol. The JavaScript library graphql-ws introduced
// it. Every protocol violation ends the connection.
type transport struct {
	maxID int
}

func (transport) name() string                         { return "graphql-transport-ws" }
func (transport) strict() bool                         { return true }
func (transport) initTimeout(o *Options) time.Duration { return o.InitTimeout }
func (transport) frequentKeepAlives() bool             { return false }
func (transport) lossEndsConnection() bool             { return false }

func (t transport) decode(frame []byte) message {
	f, ok := split(frame)
	if !ok {
		return malformed("Message is not a JSON object")
	}
	switch f.kind {
	case "connection_init":
		return withObject(kindInit, f.payload)
	case "ping":
		return withObject(kindPing, f.payload)
	case "pong":
		return withObject(kindPong, f.payload)
	case "subscribe":
		if reason := checkSubscribe(f.payload); reason != "" {
			return malformed(reason)
		}
		return t.withID(kindStart, f.id, f.payload)
	case "complete":
		return t.withID(kindStop, f.id, nil)
	}
	return malformed("Message type is unknown")
}

// withObject returns a message of kind k. If the payload is neither absent nor an object, the message is malformed.
func withObject(k kind, payload []byte) message {
	if payload != nil && payload[0] != '{' {
		return malformed("Payload is not an object")
	}
	return message{kind: k, payload: payload}
}

// withID returns a message of kind k with an operation id. If raw is not a nonempty string of at most maxID bytes, the
// message is malformed.
func (t transport) withID(k kind, raw json.RawMessage, payload []byte) message {
	id, long, _ := parseID(raw, t.maxID)
	switch {
	case raw == nil || raw[0] != '"':
		return malformed("Operation id is not a string")
	case long:
		m := malformed(fmt.Sprintf("Operation id is longer than %d bytes", t.maxID))
		m.limit = limitID
		return m
	case id.text() == "":
		return malformed("Operation id is empty")
	}
	return message{kind: k, id: id, payload: payload}
}

// checkSubscribe checks that the fields in the payload of a subscribe message have the types that the protocol
// requires. It returns a description of the first error, or "" if there is none. The Session checks everything else.
// The query may be absent if there are extensions, because extensions may refer to a persisted query.
func checkSubscribe(payload []byte) string {
	if payload == nil || payload[0] != '{' {
		return "Payload of subscribe is not an object"
	}
	fields := [...]struct {
		name, kind string
		first      byte
		value      []byte
	}{
		{"query", "a string", '"', nil},
		{"operationName", "a string", '"', nil},
		{"variables", "an object", '{', nil},
		{"extensions", "an object", '{', nil},
	}
	query, extensions := &fields[0], &fields[3]
	err := strictjson.Fields(payload, func(key, value []byte) {
		for i := range fields {
			if string(key) == fields[i].name {
				fields[i].value = nonNull(value)
			}
		}
	})
	if err != nil {
		panic(err) // the frame was decoded before, so this is valid JSON
	}
	for _, f := range fields {
		if f.value != nil && f.value[0] != f.first {
			return f.name + " is not " + f.kind
		}
	}
	if query.value == nil && extensions.value == nil {
		return "query is missing"
	}
	return ""
}

// malformed returns a malformed message. reason is the reason for the close frame.
func malformed(reason string) message { return message{kind: kindMalformed, reason: reason} }

func (transport) appendAck(b []byte) []byte       { return append(b, `{"type":"connection_ack"}`...) }
func (transport) appendKeepAlive(b []byte) []byte { return append(b, `{"type":"ping"}`...) }

func (transport) appendPong(b, payload []byte) []byte {
	return appendMessage(b, "pong", operationID{}, payload)
}

func (transport) appendData(b []byte, id operationID, payload []byte) []byte {
	return appendMessage(b, "next", id, payload)
}

func (transport) appendErrors(b []byte, id operationID, errs []json.RawMessage) []byte {
	list := []byte{'['}
	for i, e := range errs {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, e...)
	}
	return appendMessage(b, "error", id, append(list, ']'))
}

func (transport) appendComplete(b []byte, id operationID) []byte {
	return appendMessage(b, "complete", id, nil)
}

// appendStopped appends nothing, because the protocol has no response to the peer's complete.
func (transport) appendStopped(b []byte, _ operationID) []byte { return b }

func (t transport) appendResumePoint(b []byte, e ending, s resumePoint) []byte {
	if s.err != nil {
		return t.appendErrors(b, s.id, s.err.Errors)
	}
	message := messageShutdown
	if e.cause == causeExpired {
		message = messageExpired
	}
	// Use codeRetry for an expired session too, because clients treat UNAUTHENTICATED as final.
	return t.appendErrors(b, s.id, []json.RawMessage{encodeErrorAt(message, codeRetry, s.cursor)})
}

// closing appends no message to b. Clients reconnect after the close codes 1001, 1013, 4403 and 4408, and treat all
// other codes as final.
func (transport) closing(b []byte, e ending) (frame []byte, code websocket.StatusCode, reason string) {
	switch e.cause {
	case causeRefused:
		code, reason = codeForbidden, "Forbidden"
	case causeExpired:
		code, reason = websocket.StatusGoingAway, messageExpired
	case causeShutdown:
		code, reason = websocket.StatusGoingAway, messageShutdown
	case causeTryAgain:
		code, reason = websocket.StatusTryAgainLater, "Try again later"
	case causeInitTimeout:
		code, reason = codeInitTimeout, "Connection initialisation timeout"
	case causeMalformed:
		code, reason = codeMalformed, e.detail
	case causeNotUTF8:
		code, reason = websocket.StatusInvalidFramePayloadData, "Message is not UTF-8"
	case causeTooBig:
		code, reason = websocket.StatusMessageTooBig, e.detail
	case causeTooFast:
		code, reason = websocket.StatusPolicyViolation, e.detail
	case causeNoInit:
		code, reason = codeNoInit, "Unauthorized"
	case causeSecondInit:
		code, reason = codeSecondInit, "Too many initialisation requests"
	case causeIDInUse:
		code, reason = codeIDInUse, e.detail
	default:
		code, reason = codeInternal, "Internal server error"
	}
	return b, code, cutReason(reason)
}

// cutReason truncates s to at most maxReason bytes without splitting a UTF-8 character.
func cutReason(s string) string {
	if len(s) <= maxReason {
		return s
	}
	n := maxReason
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

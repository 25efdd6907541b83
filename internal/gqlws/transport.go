package gqlws

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
)

// The close codes of graphql-transport-ws. There is no 4406 (subprotocol not
// acceptable): such a handshake is refused before the upgrade.
const (
	codeMalformed   websocket.StatusCode = 4400
	codeNoInit      websocket.StatusCode = 4401
	codeForbidden   websocket.StatusCode = 4403
	codeInitTimeout websocket.StatusCode = 4408
	codeSameID      websocket.StatusCode = 4409
	codeSecondInit  websocket.StatusCode = 4429
	codeInternal    websocket.StatusCode = 4500
)

// maxReason is how long the reason in a close frame may be, in bytes (RFC 6455,
// 5.5).
const maxReason = 123

// transport is the subprotocol graphql-transport-ws, the newer of the two, known
// from the library graphql-ws. Any breach of it ends the connection.
type transport struct {
	maxID int
}

func (transport) name() string                     { return "graphql-transport-ws" }
func (transport) strict() bool                     { return true }
func (transport) opening(o *Options) time.Duration { return o.InitTimeout }
func (transport) quickens() bool                   { return false }
func (transport) lossEndsAll() bool                { return false }

func (t transport) decode(frame []byte) message {
	var f map[string]json.RawMessage // a struct would take "TYPE" for "type"
	if json.Unmarshal(frame, &f) != nil || f == nil {
		return malformed("Message is not a JSON object")
	}
	payload := unlessNull(f["payload"])
	var typ string
	_ = json.Unmarshal(f["type"], &typ) // no string is no known type
	switch typ {
	case "connection_init":
		return withObject(kindInit, payload)
	case "ping":
		return withObject(kindPing, payload)
	case "pong":
		return withObject(kindPong, payload)
	case "subscribe":
		if reason := checkSubscribe(payload); reason != "" {
			return malformed(reason)
		}
		return t.withID(kindStart, f["id"], payload)
	case "complete":
		return t.withID(kindStop, f["id"], nil)
	}
	return malformed("Message type is unknown")
}

// withObject takes an object or nothing for the payload.
func withObject(k kind, payload []byte) message {
	if payload != nil && payload[0] != '{' {
		return malformed("Payload is not an object")
	}
	return message{kind: k, payload: payload}
}

// withID needs an id, which in this protocol is a string that is not empty.
func (t transport) withID(k kind, raw json.RawMessage, payload []byte) message {
	id, long, _ := parseIdentity(raw, t.maxID)
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

// checkSubscribe says what is wrong with the types that the protocol prescribes;
// the rest is the Session's affair. A query may be missing where extensions may
// name one that is known already.
func checkSubscribe(payload []byte) string {
	if payload == nil || payload[0] != '{' {
		return "Payload of subscribe is not an object"
	}
	var p map[string]json.RawMessage
	if err := json.Unmarshal(payload, &p); err != nil {
		panic(err) // the frame it is from was read
	}
	for _, field := range []struct {
		name, kind string
		first      byte
	}{
		{"query", "a string", '"'},
		{"operationName", "a string", '"'},
		{"variables", "an object", '{'},
		{"extensions", "an object", '{'},
	} {
		if raw := unlessNull(p[field.name]); raw != nil && raw[0] != field.first {
			return field.name + " is not " + field.kind
		}
	}
	if unlessNull(p["query"]) == nil && unlessNull(p["extensions"]) == nil {
		return "query is missing"
	}
	return ""
}

func malformed(reason string) message { return message{kind: kindMalformed, reason: reason} }

func (transport) appendAck(b []byte) []byte       { return append(b, `{"type":"connection_ack"}`...) }
func (transport) appendKeepAlive(b []byte) []byte { return append(b, `{"type":"ping"}`...) }

func (transport) appendPong(b, payload []byte) []byte {
	return appendFrame(b, "pong", identity{}, payload)
}

func (transport) appendData(b []byte, id identity, payload []byte) []byte {
	return appendFrame(b, "next", id, payload)
}

func (transport) appendErrors(b []byte, id identity, errs []json.RawMessage) []byte {
	list := []byte{'['}
	for i, e := range errs {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, e...)
	}
	return appendFrame(b, "error", id, append(list, ']'))
}

func (transport) appendComplete(b []byte, id identity) []byte {
	return appendFrame(b, "complete", id, nil)
}

// appendStopped adds nothing: after the peer's complete there is silence.
func (transport) appendStopped(b []byte, _ identity) []byte { return b }

func (t transport) appendStanding(b []byte, e ending, s standing) []byte {
	if s.own != nil {
		return t.appendErrors(b, s.id, s.own.Errors)
	}
	say := sayShutdown
	if e.cause == causeExpired {
		say = sayExpired
	}
	// UNAUTHENTICATED would be final for an expired session, too.
	return t.appendErrors(b, s.id, []json.RawMessage{encodeErrorAt(say, codeRetry, s.cursor)})
}

// farewell is the close frame alone. Clients try again after 1001, 1013, 4403
// and 4408, and take the other codes as final.
func (transport) farewell(b []byte, e ending) (frame []byte, code websocket.StatusCode, reason string) {
	switch e.cause {
	case causeRefused:
		code, reason = codeForbidden, "Forbidden"
	case causeExpired:
		code, reason = websocket.StatusGoingAway, sayExpired
	case causeShutdown:
		code, reason = websocket.StatusGoingAway, sayShutdown
	case causeLater:
		code, reason = websocket.StatusTryAgainLater, "Try again later"
	case causeSilent:
		code, reason = codeInitTimeout, "Connection initialisation timeout"
	case causeMalformed:
		code, reason = codeMalformed, e.detail
	case causeNotText:
		code, reason = websocket.StatusInvalidFramePayloadData, "Message is not UTF-8"
	case causeTooBig:
		code, reason = websocket.StatusMessageTooBig, e.detail
	case causeTooMany:
		code, reason = websocket.StatusPolicyViolation, e.detail
	case causeNoInit:
		code, reason = codeNoInit, "Unauthorized"
	case causeSecondInit:
		code, reason = codeSecondInit, "Too many initialisation requests"
	case causeSameID:
		code, reason = codeSameID, e.detail
	default:
		code, reason = codeInternal, "Internal server error"
	}
	return b, code, cutReason(reason)
}

// cutReason makes a reason fit, without a broken character at its end.
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

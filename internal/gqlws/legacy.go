package gqlws

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// legacy is the subprotocol graphql-ws, the older of the two, known from
// Apollo's subscriptions-transport-ws.
type legacy struct {
	maxID int
}

func (legacy) name() string { return "graphql-ws" }

func (legacy) strict() bool                     { return false }
func (legacy) opening(o *Options) time.Duration { return o.UnusedTimeout }
func (legacy) quickens() bool                   { return true }
func (legacy) lossEndsAll() bool                { return true }

func (l legacy) decode(frame []byte) message {
	var f struct {
		ID      json.RawMessage `json:"id"`
		Type    json.RawMessage `json:"type"`
		Payload json.RawMessage `json:"payload"`
	}
	// encoding/json would take null for an object.
	trimmed := bytes.TrimLeft(frame, " \t\r\n")
	if len(trimmed) == 0 || trimmed[0] != '{' || json.Unmarshal(frame, &f) != nil {
		return message{
			kind:   kindMalformed,
			answer: appendConnectionError(nil, encodeError("Message is not a JSON object", "")),
		}
	}

	m := message{payload: unlessNull(f.Payload)}
	id, long, idErr := parseIdentity(f.ID, l.maxID)
	m.id = id

	var typ string
	_ = json.Unmarshal(f.Type, &typ) // no string is no known type
	switch typ {
	case "connection_init":
		m.kind = kindInit
		return m
	case "connection_terminate":
		m.kind = kindTerminate
		return m
	case "start":
		m.kind = kindStart
	case "stop":
		m.kind = kindStop
	default:
		m.kind = kindWrong
		m.answer = appendError(nil, id, encodeError("Invalid message type!", ""))
		return m
	}
	if idErr != nil {
		m.kind = kindWrong
		m.answer = appendError(nil, id, idErr)
		if long {
			m.limit = limitID
		}
	}
	return m
}

func (legacy) appendAck(b []byte) []byte       { return append(b, `{"type":"connection_ack"}`...) }
func (legacy) appendKeepAlive(b []byte) []byte { return append(b, `{"type":"ka"}`...) }

// appendPong adds nothing: decode knows no ping.
func (legacy) appendPong(b, _ []byte) []byte { return b }

func (legacy) appendData(b []byte, id identity, payload []byte) []byte {
	return appendFrame(b, "data", id, payload)
}

// appendErrors says the first one: clients of this protocol read an object.
func (legacy) appendErrors(b []byte, id identity, errs []json.RawMessage) []byte {
	return appendError(b, id, errs[0])
}

func (legacy) appendComplete(b []byte, id identity) []byte {
	return appendFrame(b, "complete", id, []byte("null"))
}

func (l legacy) appendStopped(b []byte, id identity) []byte { return l.appendComplete(b, id) }

// appendStanding adds nothing: clients take an operation's error as final and
// do not start it again. The farewell has all standings.
func (legacy) appendStanding(b []byte, _ ending, _ standing) []byte { return b }

func (legacy) farewell(b []byte, e ending) ([]byte, websocket.StatusCode, string) {
	// Clients of this protocol have been seen to overlook a bare close.
	if err := connectionError(e); err != nil {
		b = appendConnectionError(b, err)
	}
	switch e.cause {
	case causeTerminated:
		return b, websocket.StatusNormalClosure, ""
	case causeExpired:
		return b, websocket.StatusGoingAway, "session expired"
	case causeShutdown:
		return b, websocket.StatusGoingAway, "shutting down"
	case causeLost:
		return b, websocket.StatusGoingAway, "stream lost"
	case causeNotText:
		return b, websocket.StatusInvalidFramePayloadData, "not UTF-8"
	case causeTooBig:
		return b, websocket.StatusMessageTooBig, "message too big"
	case causeLater:
		return b, websocket.StatusTryAgainLater, "try again later"
	case causeInternal:
		return b, websocket.StatusInternalError, "internal error"
	default:
		return b, websocket.StatusPolicyViolation, ""
	}
}

func appendError(b []byte, id identity, err json.RawMessage) []byte {
	return appendFrame(b, "error", id, err)
}

func appendConnectionError(b []byte, err json.RawMessage) []byte {
	return appendFrame(b, "connection_error", identity{echo: []byte("null")}, err)
}

// appendFrame adds a frame with its keys in the order the network's service
// sends them; without an id or a payload where that is absent.
func appendFrame(b []byte, typ string, id identity, payload []byte) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, typ...)
	b = append(b, '"')
	if id.echo != nil {
		b = append(b, `,"id":`...)
		b = append(b, id.echo...)
	}
	if payload != nil {
		b = append(b, `,"payload":`...)
		b = append(b, payload...)
	}
	return append(b, '}')
}

// parseIdentity reads an id. What is wrong with it is an encoded GraphQL error;
// the identity is then absent, so that nothing strange is echoed. long says that
// it is over max.
func parseIdentity(raw json.RawMessage, max int) (id identity, long bool, wrong json.RawMessage) {
	if raw == nil {
		return identity{}, false, nil
	}
	text := string(raw)
	switch c := raw[0]; {
	case c == 'n':
		return identity{echo: raw, key: "null"}, false, nil
	case c == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			panic(err) // the frame it is from was read
		}
	case c == '-' || '0' <= c && c <= '9':
	default:
		return identity{}, false, encodeError("Operation id is neither a string nor a number", "BAD_REQUEST")
	}
	if max > 0 && len(text) > max {
		return identity{}, true, encodeError(fmt.Sprintf("Operation id is longer than %d bytes", max), "LIMIT_EXCEEDED")
	}
	return identity{echo: raw, key: "=" + text}, false, nil
}

func unlessNull(raw json.RawMessage) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

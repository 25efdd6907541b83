package gqlws

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// legacy is the codec of graphql-ws, the older subprotocol. Apollo's library subscriptions-transport-ws introduced it.
type legacy struct {
	maxID int
}

func (legacy) name() string { return "graphql-ws" }

func (legacy) strict() bool                         { return false }
func (legacy) initTimeout(o *Options) time.Duration { return o.UnusedTimeout }
func (legacy) frequentKeepAlives() bool             { return true }
func (legacy) lossEndsConnection() bool             { return true }

func (l legacy) decode(frame []byte) message {
	f, ok := split(frame)
	if !ok {
		return message{
			kind:  kindMalformed,
			reply: appendConnectionError(nil, encodeError("Message is not a JSON object", "")),
		}
	}

	m := message{payload: f.payload}
	id, long, idErr := parseID(f.id, l.maxID)
	m.id = id

	switch f.kind {
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
		m.kind = kindInvalid
		m.reply = appendError(nil, id, encodeError("Invalid message type!", ""))
		return m
	}
	if idErr != nil {
		m.kind = kindInvalid
		m.reply = appendError(nil, id, idErr)
		if long {
			m.limit = limitID
		}
	}
	return m
}

func (legacy) appendAck(b []byte) []byte       { return append(b, `{"type":"connection_ack"}`...) }
func (legacy) appendKeepAlive(b []byte) []byte { return append(b, `{"type":"ka"}`...) }

// appendPong appends nothing, because the protocol has no pong message.
func (legacy) appendPong(b, _ []byte) []byte { return b }

func (legacy) appendData(b []byte, id operationID, payload []byte) []byte {
	return appendMessage(b, "data", id, payload)
}

// appendErrors appends only the first error, because clients of this protocol expect one object instead of a list.
func (legacy) appendErrors(b []byte, id operationID, errs []json.RawMessage) []byte {
	return appendError(b, id, errs[0])
}

func (legacy) appendComplete(b []byte, id operationID) []byte {
	return appendMessage(b, "complete", id, []byte("null"))
}

func (l legacy) appendStopped(b []byte, id operationID) []byte { return l.appendComplete(b, id) }

// appendResumePoint appends nothing, because clients treat an operation's error as final and do not restart the
// operation. The message of closing covers all streams instead.
func (legacy) appendResumePoint(b []byte, _ ending, _ resumePoint) []byte { return b }

func (legacy) closing(b []byte, e ending) ([]byte, websocket.StatusCode, string) {
	// Some clients of this protocol ignore a close frame unless an error message precedes it.
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
	case causeNotUTF8:
		return b, websocket.StatusInvalidFramePayloadData, "not UTF-8"
	case causeTooBig:
		return b, websocket.StatusMessageTooBig, "message too big"
	case causeTryAgain:
		return b, websocket.StatusTryAgainLater, "try again later"
	case causeInternal:
		return b, websocket.StatusInternalError, "internal error"
	default:
		return b, websocket.StatusPolicyViolation, ""
	}
}

func appendError(b []byte, id operationID, err json.RawMessage) []byte {
	return appendMessage(b, "error", id, err)
}

func appendConnectionError(b []byte, err json.RawMessage) []byte {
	return appendMessage(b, "connection_error", operationID{raw: []byte("null")}, err)
}

// appendMessage appends a message of type typ. The order of its keys is that of the original service, which is recorded
// in testdata/graphql-ws/recorded.txtar. If id or payload is absent, its key is omitted.
func appendMessage(b []byte, typ string, id operationID, payload []byte) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, typ...)
	b = append(b, '"')
	if id.raw != nil {
		b = append(b, `,"id":`...)
		b = append(b, id.raw...)
	}
	if payload != nil {
		b = append(b, `,"payload":`...)
		b = append(b, payload...)
	}
	return append(b, '}')
}

// parseID parses the operation id raw. If the id is invalid, parseID returns an encoded GraphQL error and an absent id,
// so that the invalid id is not sent back. long reports that the id is longer than max bytes.
func parseID(raw json.RawMessage, max int) (id operationID, long bool, wrong json.RawMessage) {
	if raw == nil {
		return operationID{}, false, nil
	}
	text, size := string(raw), len(raw)
	switch c := raw[0]; {
	case c == 'n':
		return operationID{raw: raw, key: "null"}, false, nil
	case c == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			panic(err) // the frame was decoded before, so this is valid JSON
		}
		size -= len(`""`) // the quotes do not count, but escape sequences count in full
	case c == '-' || '0' <= c && c <= '9':
	default:
		return operationID{}, false, encodeError("Operation id is neither a string nor a number", "BAD_REQUEST")
	}
	if max > 0 && size > max {
		detail := fmt.Sprintf("Operation id is longer than %d bytes", max)
		return operationID{}, true, encodeError(detail, "LIMIT_EXCEEDED")
	}
	return operationID{raw: raw, key: "=" + text}, false, nil
}

// nonNull returns raw, or nil if raw is the JSON value null.
func nonNull(raw json.RawMessage) []byte {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

package gqlws

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// A codec is one subprotocol: it turns frames into messages and back, and says
// how strict the protocol is. The order of events is the connection's affair,
// so codecs hold no state and are shared by all connections.
//
// Its append methods add one frame to b; one that adds nothing means that the
// protocol says nothing there.
type codec interface {
	// name is the subprotocol as it is negotiated.
	name() string

	// strict is whether a breach (no init, a second one, an id in use, a
	// malformed frame) ends the connection rather than being lived with.
	strict() bool

	// opening is how long a peer may take to send its init, or, if the protocol is
	// not strict, how long it may be connected without one and without an operation.
	opening(o *Options) time.Duration

	// quickens is whether the first keep-alive follows the ack immediately, the
	// second one Options.KeepAlive later, and all others at a fifth of that. If
	// not, there is one each Options.KeepAlive, the first that long after the ack.
	quickens() bool

	// lossEndsAll is whether a lost stream ends the connection, because clients
	// take an operation's own error as final.
	lossEndsAll() bool

	// decode never fails: what is wrong with a frame is a kind of message. The
	// frame is valid UTF-8.
	decode(frame []byte) message

	appendAck(b []byte) []byte
	appendKeepAlive(b []byte) []byte
	appendPong(b, payload []byte) []byte
	appendData(b []byte, id identity, payload []byte) []byte
	appendErrors(b []byte, id identity, errs []json.RawMessage) []byte
	appendComplete(b []byte, id identity) []byte
	// appendStopped answers the peer's own stop.
	appendStopped(b []byte, id identity) []byte
	// appendStanding tells where a running stream stands when this side ends
	// the connection; nothing where the farewell says it for all of them.
	appendStanding(b []byte, e ending, s standing) []byte

	// farewell is the last frame before the close frame (which may be nothing),
	// and the close frame's code and reason. e has all standings.
	farewell(b []byte, e ending) (frame []byte, code websocket.StatusCode, reason string)
}

type kind int

const (
	kindMalformed kind = iota // not of the protocol at all
	kindWrong                 // nothing that can be acted on
	kindInit
	kindStart
	kindStop
	kindTerminate
	kindPing
	kindPong
)

// A message is what a peer said.
type message struct {
	kind    kind
	id      identity
	payload []byte // raw JSON, a copy; nil where absent or null
	answer  []byte // malformed, wrong: the frame that says so, where one does
	reason  string // malformed: what is wrong, where that ends the connection
	limit   string // malformed, wrong: the limit that it went over, if any
}

// An identity is an operation's id. Peers send strings, but numbers and no id at
// all have been seen: it is echoed as it came, while equal text is the same id.
type identity struct {
	echo []byte // raw JSON; nil where absent
	key  string // tells ids apart: "" absent, "null", or "=" and the text
}

func (id identity) text() string { return strings.TrimPrefix(id.key, "=") }

package chain

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/Khan/genqlient/graphql"
	"github.com/coder/websocket"
)

const (
	handshake = 10 * time.Second // for that, and for a write
	longest   = 1 << 20          // bytes; more than a block takes
)

// A dialer opens WebSockets for genqlient. What they hold ends with ctx.
type dialer struct{ silence time.Duration }

func (d dialer) DialContext(ctx context.Context, url string, header http.Header) (graphql.WSConn, error) {
	soon, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	conn, response, err := websocket.Dial(soon, url, &websocket.DialOptions{
		HTTPHeader: header, Subprotocols: []string{"graphql-transport-ws"},
	})
	if err != nil {
		if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
			err = fmt.Errorf("%w: %w", handshakeStatus(response.StatusCode), err)
		}
		return nil, err
	}
	conn.SetReadLimit(longest)
	context.AfterFunc(ctx, func() { _ = conn.CloseNow() })
	return &socket{conn, d.silence, ctx}, nil
}

// A handshakeStatus is what a service answers instead of opening a WebSocket.
type handshakeStatus int

func (s handshakeStatus) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

// A socket speaks graphql-transport-ws where genqlient does not: it knows neither
// ping nor error.
type socket struct {
	conn    *websocket.Conn
	silence time.Duration
	ctx     context.Context // its life's; genqlient's calls have none
}

func (s *socket) ReadMessage() (int, []byte, error) {
	for {
		var message struct {
			ID      string          `json:"id,omitempty"`
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload,omitempty"`
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.silence)
		_, frame, err := s.conn.Read(ctx)
		cancel()
		if err == nil && json.Unmarshal(frame, &message) != nil {
			err = io.ErrUnexpectedEOF // where a line ends inside a message, Read may give the part
		}
		switch {
		case err != nil:
			return 0, nil, err
		case message.Type == "ping":
			if err := s.WriteMessage(int(websocket.MessageText), []byte(`{"type":"pong"}`)); err != nil {
				return 0, nil, err
			}
			continue
		case message.Type == "error": // a list of errors, which genqlient takes in an answer alone
			message.Type = "next"
			message.Payload, _ = json.Marshal(map[string]json.RawMessage{"errors": message.Payload})
			frame, _ = json.Marshal(message)
		}
		return int(websocket.MessageText), frame, nil
	}
}

func (s *socket) WriteMessage(kind int, frame []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, handshake)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageType(kind), frame)
}

func (s *socket) Close() error { return s.conn.CloseNow() }

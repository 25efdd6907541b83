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
	handshake = 10 * time.Second // timeout of a handshake and of a write
	longest   = 1 << 20          // maximum message size in bytes; larger than any block
)

// A dialer opens WebSockets for genqlient. Each one is closed when the context of its dial is done.
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

// A handshakeStatus is the HTTP status of a refused WebSocket handshake.
type handshakeStatus int

func (s handshakeStatus) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

// A socket adapts graphql-transport-ws to genqlient, which cannot process ping and error messages.
type socket struct {
	conn    *websocket.Conn
	silence time.Duration
	ctx     context.Context // lifetime of the socket; genqlient's calls have no context
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
			err = io.ErrUnexpectedEOF // Read may return a part of a message if the connection ends inside it
		}
		switch {
		case err != nil:
			return 0, nil, err
		case message.Type == "ping":
			if err := s.WriteMessage(int(websocket.MessageText), []byte(`{"type":"pong"}`)); err != nil {
				return 0, nil, err
			}
			continue
		case message.Type == "error": // genqlient accepts errors only in a next message
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

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
	handshake = 10 * time.Second // timeout for a handshake, and for each write
	longest   = 1 << 20          // maximum message size in bytes; larger than any block
)

// A dialer opens WebSockets for genqlient.
type dialer struct{ silence time.Duration }

// DialContext implements graphql.Dialer. The WebSocket is closed when ctx is done.
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

// A handshakeStatus is the HTTP status with which the service refused a WebSocket handshake.
type handshakeStatus int

func (s handshakeStatus) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

// A socket is a WebSocket for genqlient. It handles the ping and error messages of
// graphql-transport-ws, because genqlient does not.
type socket struct {
	conn    *websocket.Conn
	silence time.Duration
	ctx     context.Context // limits all reads and writes, because genqlient's calls have no context
}

// ReadMessage implements graphql.WSConn. It responds to pings itself and returns the next other
// message.
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
			err = io.ErrUnexpectedEOF // Read may return an incomplete message if the connection is lost
		}
		switch {
		case err != nil:
			return 0, nil, err
		case message.Type == "ping":
			if err := s.WriteMessage(int(websocket.MessageText), []byte(`{"type":"pong"}`)); err != nil {
				return 0, nil, err
			}
			continue
		case message.Type == "error": // convert it, because genqlient accepts errors only in a next message
			message.Type = "next"
			message.Payload, _ = json.Marshal(map[string]json.RawMessage{"errors": message.Payload})
			frame, _ = json.Marshal(message)
		}
		return int(websocket.MessageText), frame, nil
	}
}

// WriteMessage implements graphql.WSConn.
func (s *socket) WriteMessage(kind int, frame []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, handshake)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageType(kind), frame)
}

// Close implements graphql.WSConn.
func (s *socket) Close() error { return s.conn.CloseNow() }

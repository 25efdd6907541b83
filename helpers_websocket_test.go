package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
)

// A socket is a WebSocket client in a synctest bubble. It buffers the received frames for receive.
type socket struct {
	*websocket.Conn
	t      *testing.T
	frames chan string
}

// socket opens a graphql-ws socket. header contains alternating names and values of headers.
func (n *network) socket(t *testing.T, header ...string) *socket {
	t.Helper()
	s, res, err := n.open(t, "/demo/graphql", header...)
	if err != nil {
		t.Fatalf("the handshake failed: %v, response %v", err, res)
	}
	return s
}

func (n *network) open(t *testing.T, path string, header ...string) (*socket, *http.Response, error) {
	return n.openWith(t, "graphql-ws", path, header...)
}

// openWith opens a socket with a subprotocol.
func (n *network) openWith(t *testing.T, protocol, path string, header ...string) (*socket, *http.Response, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	client := n.client()
	t.Cleanup(client.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, res, err := websocket.Dial(ctx, "ws://api.example"+path, &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: h, Subprotocols: []string{protocol},
	})
	if err != nil {
		return nil, res, err
	}
	s := &socket{conn, t, make(chan string, 10_000)}
	go s.listen()
	t.Cleanup(func() {
		_ = conn.CloseNow()
		for range s.frames { // until the listener has returned
		}
	})
	return s, res, nil
}

func (s *socket) listen() {
	defer close(s.frames)
	for {
		_, frame, err := s.Read(context.Background())
		var end websocket.CloseError
		switch {
		case err == nil:
			s.frames <- string(frame)
			continue
		case errors.As(err, &end):
			s.frames <- fmt.Sprintf("CLOSE %d", end.Code)
		default:
			s.frames <- "CUT"
		}
		return
	}
}

func (s *socket) send(frame string) {
	s.t.Helper()
	if err := s.Write(context.Background(), websocket.MessageText, []byte(frame)); err != nil {
		s.t.Fatalf("write %s: %v", frame, err)
	}
}

// receive waits until the bubble is idle and returns the frames received since the last call.
func (s *socket) receive() []string {
	synctest.Wait()
	var frames []string
	for {
		select {
		case frame, open := <-s.frames:
			if !open {
				return frames
			}
			frames = append(frames, frame)
		default:
			return frames
		}
	}
}

// expect compares the received frames, without the reported gaps in cursors, with want.
func (s *socket) expect(what string, want ...string) {
	s.t.Helper()
	got := s.receive()
	for i := range got {
		got[i] = reportedGaps.ReplaceAllString(got[i], "")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(want) {
		s.t.Errorf("%s: received\n%s\nwant\n%s", what, lines(got), lines(want))
	}
}

func lines(frames []string) (text string) {
	for _, f := range frames {
		text += "  " + f + "\n"
	}
	return text
}

const (
	ack               = `{"type":"connection_ack"}`
	ka                = `{"type":"ka"}`
	unauthorizedError = `{"type":"connection_error","id":null,"payload":{"message":"Unauthorized access",` +
		`"extensions":{"code":"UNAUTHENTICATED"}}}`

	startVersion = `{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`
	dataVersion  = `{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.1.0"}}}}`
	complete     = `{"type":"complete","id":"1","payload":null}`
)

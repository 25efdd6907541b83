package byhand

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"net"
	"net/http"
	"sync"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// A stream encodes each new block once and writes it to all sockets, so that most of its cost is in the
// kernel. It works only with the client of this benchmark, which sends one frame per packet, and it
// treats all subscriptions the same.
type stream struct {
	source *source.Source
	once   sync.Once
	mu     sync.Mutex
	conns  map[net.Conn]struct{}
}

func (s *stream) serve(w http.ResponseWriter, r *http.Request) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Protocol: graphql-transport-ws\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"))
	go s.serveConn(conn)
}

// serveConn reads messages until the client disconnects. It acknowledges connection_init, and on
// subscribe it adds conn to the connections that receive blocks.
func (s *stream) serveConn(conn net.Conn) {
	buf := make([]byte, 1024)
	for {
		n, err := conn.Read(buf)
		switch {
		case err != nil:
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			_ = conn.Close()
			return
		case bytes.Contains(buf[:n], []byte("connection_init")):
			_, _ = conn.Write(appendText(nil, []byte(`{"type":"connection_ack"}`)))
		case bytes.Contains(buf[:n], []byte(`"subscribe"`)):
			s.once.Do(s.start)
			s.mu.Lock()
			s.conns[conn] = struct{}{}
			s.mu.Unlock()
		}
	}
}

// start starts a goroutine that follows the chain until the process exits.
func (s *stream) start() {
	newest, err := s.source.Blocks(context.Background(), chaingql.BlocksQuery{Last: 1})
	if err != nil || len(newest) == 0 {
		panic("byhand: the chain has no blocks")
	}
	go func() {
		var text []byte
		for b := range s.source.Follow(context.Background(), newest[0].Cursor) {
			text = append(text[:0], `{"id":"1","type":"next","payload":{"data":{"blocks":`...)
			text = append(appendNode(text, &b, ""), "}}}"...)
			frame := appendText(nil, text)
			s.mu.Lock()
			for conn := range s.conns {
				_, _ = conn.Write(frame) // if this fails, serveConn removes the connection
			}
			s.mu.Unlock()
		}
	}()
}

func appendText(dst, text []byte) []byte {
	if len(text) < 126 {
		dst = append(dst, 0x81, byte(len(text)))
	} else {
		dst = binary.BigEndian.AppendUint16(append(dst, 0x81, 126), uint16(len(text)))
	}
	return append(dst, text...)
}

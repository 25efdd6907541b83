package chaingql_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
)

// socketBytes is the memory of one socket that no other limit counts, as docs/limits.md states it.
const socketBytes = 64 << 10

// anySecret is an Authorizer that admits every client.
type anySecret struct{}

func (anySecret) Authorize(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {
	return ctx, nil
}

// The client of each socket uses the limits of a handshake and reads one large response. Then it reads nothing, and
// sends as many pings as the outbox has room for, and a message that waits to be prepared.
func TestSocketKeepsAtMostTheDocumentedMemory(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	path := "/%61" + strings.Repeat("B", 500-len("/graphql")) + "/graphql?"
	header := "GET " + path + strings.Repeat("q", 8<<10-len(path+"x")) + " HTTP/1.1\r\nHost: x\r\n"
	for _, name := range []string{"traceparent", "tracestate", "baggage"} {
		header += name + ": " + strings.Repeat("t", 1<<10) + "\r\n"
	}
	for protocol, start := range map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const sockets = 50
				begin := func(document string) []byte {
					payload := body(document, nil)
					return maskedFrame(fmt.Sprintf(`{"id":"%d","type":%q,"payload":%s}`, len(payload), start, payload))
				}
				chain := chainOf(t, randomBlocks(7, 50))
				h, _ := newHandler(t, chain, chaingql.Options{Authorizer: anySecret{}, Hooks: chaingql.Hooks{
					OperationStarted: func(ctx context.Context, _ chaingql.Operation) context.Context { return ctx },
				}})
				n := serve(t, h)
				large := "{blockchain{" + aliased(3, "blocks(last:50){edges{node{"+allOfABlock+"}}}") + "}}"
				equal(t, "status", post(h, body(large, nil)).Code, 200) // the plan is compiled, and the blocks are read
				before := heapInUse()
				clients := make([]unreadClient, sockets)
				for i := range clients {
					clients[i] = openUnread(t, n, header, protocol)
					clients[i].send(maskedFrame(`{"type":"connection_init"}`))
					for clients[i].readFrame() != len(ack) { // skips the ka of graphql-ws
					}
					clients[i].send(begin(large))
				}
				synctest.Wait()
				release := h.HoldPreparations()
				defer release()
				for i, c := range clients {
					c.send(slices.Repeat(append([]byte{0x89, 0x80 | 125, 0, 0, 0, 0}, make([]byte, 125)...), 42))
					synctest.Wait()
					for c.readFrame() < 20<<10 {
					}
					c.send(begin(fmt.Sprintf("{a%02d:%s}", i, strings.Repeat("a", 16<<10-len(body("{a00:}", nil))))))
				}
				synctest.Wait()
				_, counted := h.Pending()
				equal(t, "counted bytes", counted, 0)
				kept := (heapInUse() - before) / sockets
				if kept > socketBytes {
					t.Errorf("a socket keeps %d bytes, want at most %d", kept, socketBytes)
				}
				t.Logf("a socket keeps %d bytes", kept)
			})
		})
	}
}

// An unreadClient reads from its connection only if the test calls readFrame.
type unreadClient struct {
	net.Conn
	t *testing.T
}

// openUnread opens a socket and reads only the response to the handshake.
func openUnread(t *testing.T, n *network, header, protocol string) unreadClient {
	conn, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := unreadClient{conn, t}
	c.send([]byte(header + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: " + protocol + "\r\n\r\n"))
	var response []byte
	for !bytes.HasSuffix(response, []byte("\r\n\r\n")) {
		response = append(response, c.read(1)...)
	}
	return c
}

func (c unreadClient) send(p []byte) {
	c.t.Helper()
	if _, err := c.Write(p); err != nil {
		c.t.Fatal(err)
	}
}

func (c unreadClient) read(n int) []byte {
	c.t.Helper()
	p := make([]byte, n)
	if _, err := io.ReadFull(c, p); err != nil {
		c.t.Fatal(err)
	}
	return p
}

// readFrame reads a frame and returns the size of its payload.
func (c unreadClient) readFrame() int {
	c.t.Helper()
	n := int(c.read(2)[1])
	switch n {
	case 126:
		n = int(binary.BigEndian.Uint16(c.read(2)))
	case 127:
		n = int(binary.BigEndian.Uint64(c.read(8)))
	}
	return len(c.read(n))
}

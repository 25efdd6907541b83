package gqlws

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// A peer is a client that can misbehave. It records each received frame as a line: the text of a message, PING, PONG
// with its payload, or CLOSE with its code and reason. It records CUT if the connection ended without a close frame.
type peer struct {
	t    *testing.T
	conn net.Conn

	writing chan struct{} // full during a write; not a mutex, because synctest ignores waiting for a mutex

	mu        sync.Mutex
	received  []string
	noAnswers bool // the peer responds neither to pings nor to close frames
	closed    bool // a close frame has arrived
	end       time.Time
}

// dial connects a peer of the legacy protocol over net.Pipe. The peer reads nothing until startReading is called.
func dial(t *testing.T, s *Server, ss Session) *peer {
	t.Helper()
	return dialAs(t, s, ss, "graphql-ws", nil)
}

// dialAs connects a peer of the given protocol. The peer sends prefetched together with the handshake.
func dialAs(t *testing.T, s *Server, ss Session, protocol string, prefetched []byte) *peer {
	t.Helper()
	here, there := net.Pipe()
	w := &pipeWriter{conn: there, header: http.Header{}, prefetched: prefetched}
	r := upgradeRequest(protocol)
	done := make(chan error, 1)
	go func() { done <- s.Accept(w, r, ss) }()
	p := &peer{t: t, conn: here, writing: make(chan struct{}, 1)}
	br := bufio.NewReader(here)
	res, err := http.ReadResponse(br, r)
	if err != nil {
		t.Fatalf("reading the handshake response failed: %v", err)
	}
	if err := <-done; err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: status %d, error %v", res.StatusCode, err)
	}
	if got := res.Header.Get("Sec-WebSocket-Protocol"); got != protocol {
		t.Fatalf("handshake: protocol %q, want %q", got, protocol)
	}
	if br.Buffered() != 0 {
		t.Fatal("received frames with the handshake, want none")
	}
	return p
}

// startReading starts a goroutine that reads frames, records them, and responds to pings and close frames.
func (p *peer) startReading() *peer {
	go func() {
		br := bufio.NewReader(p.conn)
		for {
			op, payload, err := readServerFrame(br)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return // stopReading was called
			}
			if err != nil {
				p.mu.Lock()
				if !p.closed {
					p.received = append(p.received, "CUT")
				}
				p.mu.Unlock()
				p.conn.Close()
				return
			}
			p.mu.Lock()
			mute := p.noAnswers
			switch op {
			case opPing:
				if mute {
					p.received = append(p.received, "PING")
				}
			case opPong:
				p.received = append(p.received, strings.TrimSpace("PONG "+string(payload)))
			case opClose:
				p.closed, p.end = true, time.Now()
				p.received = append(p.received, closeLine(payload))
			default:
				p.received = append(p.received, string(payload))
			}
			p.mu.Unlock()
			if mute {
				continue
			}
			if op == opPing {
				go p.send(opPong, payload)
			}
			if op == opClose {
				go p.send(opClose, payload)
			}
		}
	}()
	return p
}

// stopReading ends the goroutine of startReading, so that the peer reads nothing more.
func (p *peer) stopReading() {
	p.t.Helper()
	synctest.Wait()
	if err := p.conn.SetReadDeadline(time.Now()); err != nil {
		p.t.Error(err)
	}
	synctest.Wait()
}

// stopAnswering makes the peer stop responding to pings and close frames. The peer records pings from now on.
func (p *peer) stopAnswering() {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noAnswers = true
}

func closeLine(payload []byte) string {
	if len(payload) < 2 {
		return "CLOSE"
	}
	return strings.TrimSpace(fmt.Sprintf("CLOSE %d %s", binary.BigEndian.Uint16(payload), payload[2:]))
}

// send writes one frame. It returns an error if the connection has ended, which the goroutine of startReading records.
func (p *peer) send(op byte, payload []byte) error { return p.write(frameOf(true, op, payload)) }

func (p *peer) sendText(frames ...string) {
	for _, f := range frames {
		_ = p.send(opText, []byte(f))
	}
}

func (p *peer) write(b []byte) error {
	p.writing <- struct{}{}
	defer func() { <-p.writing }()
	_, err := p.conn.Write(b)
	return err
}

// next waits until all goroutines are blocked. Then it removes and returns the first recorded line, or returns "" if
// there is none.
func (p *peer) next() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.received) == 0 {
		return ""
	}
	line := p.received[0]
	p.received = p.received[1:]
	return line
}

func (p *peer) expect(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.next(); got != want {
			p.t.Errorf("received %s\nwant     %s", got, want)
		}
	}
}

func (p *peer) expectNothing() {
	p.t.Helper()
	if got := p.next(); got != "" {
		p.t.Errorf("received %s\nwant     nothing", got)
	}
}

func frameOf(fin bool, op byte, payload []byte) []byte {
	if fin {
		op |= 0x80
	}
	b := []byte{op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = append(b, 0x80|126)
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b = append(b, 0x80|127)
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

func readServerFrame(br *bufio.Reader) (op byte, payload []byte, err error) {
	var h [8]byte
	if _, err := io.ReadFull(br, h[:2]); err != nil {
		return 0, nil, err
	}
	if h[0]&0xf0 != 0x80 || h[1]&0x80 != 0 {
		return 0, nil, errors.New("not an unfragmented, unmasked frame")
	}
	op = h[0] & 0xf
	n := uint64(h[1])
	switch n {
	case 126:
		_, err = io.ReadFull(br, h[:2])
		n = uint64(binary.BigEndian.Uint16(h[:2]))
	case 127:
		_, err = io.ReadFull(br, h[:8])
		n = binary.BigEndian.Uint64(h[:8])
	}
	if err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(br, payload)
	return op, payload, err
}

func requestError(message, code string) *RequestError {
	first := fmt.Sprintf(`{"message":%q,"extensions":{"code":%q}}`, message, code)
	return &RequestError{Errors: []json.RawMessage{[]byte(first), []byte(`{"message":"a second one"}`)}}
}

// legacyError returns the message with an error that precedes the close frame of a graphql-ws connection.
func legacyError(message, code string) string {
	return fmt.Sprintf(`{"type":"connection_error","id":null,"payload":{"message":%q,"extensions":{"code":%q}}}`,
		message, code)
}

func upgradeRequest(protocols string) *http.Request {
	r := httptest.NewRequest("GET", "/p/graphql", nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	r.Header.Set("Sec-WebSocket-Version", "13")
	r.Header.Set("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
	if protocols != "" {
		r.Header.Set("Sec-WebSocket-Protocol", protocols)
	}
	return r
}

// A pipeWriter is a ResponseWriter. Its Hijack method returns one end of a net.Pipe.
type pipeWriter struct {
	conn         net.Conn
	header       http.Header
	wrote        bool
	err          error
	prefetched   []byte
	beforeHijack func() // called by Hijack
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) WriteHeader(int)             { w.wrote = true }
func (w *pipeWriter) Write(p []byte) (int, error) { w.wrote = true; return len(p), nil }
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.beforeHijack != nil {
		w.beforeHijack()
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	br := bufio.NewReader(io.MultiReader(bytes.NewReader(w.prefetched), w.conn))
	if _, err := br.Peek(len(w.prefetched)); err != nil {
		return nil, nil, err
	}
	return w.conn, bufio.NewReadWriter(br, bufio.NewWriter(w.conn)), nil
}

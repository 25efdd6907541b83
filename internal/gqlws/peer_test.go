package gqlws

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if f := flag.Lookup("test.fuzz"); f != nil && f.Value.String() != "" {
		os.Exit(code) // fuzzing has goroutines of its own
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			os.Exit(code)
		}
		time.Sleep(20 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	fmt.Fprintf(os.Stderr, "goroutines are left behind:\n%s\n", buf[:runtime.Stack(buf, true)])
	os.Exit(1)
}

var testOptions = Options{
	KeepAlive:     15 * time.Second,
	FirstMessage:  60 * time.Second,
	FrameTimeout:  5 * time.Second,
	WriteTimeout:  10 * time.Second,
	MaxMessage:    512,
	MaxOperations: 3,
	MaxID:         16,
	MaxSockets:    10,
}

const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
	opPong   = 10
)

// A peer is a client that can misbehave. It notes what it hears as lines: the
// text of a message, PING, PONG, CLOSE and its code, and CUT where the
// connection ended without a close frame.
type peer struct {
	t    *testing.T
	conn net.Conn

	writing sync.Mutex

	mu     sync.Mutex
	heard  []string
	mute   bool // answers neither pings nor close frames
	closed bool // a close frame came
}

// dial connects a peer over net.Pipe; it hears nothing before listen.
func dial(t *testing.T, s *Server, ss Session) *peer {
	t.Helper()
	return dialAhead(t, s, ss, nil)
}

// dialAhead sends bytes along with the handshake.
func dialAhead(t *testing.T, s *Server, ss Session, ahead []byte) *peer {
	t.Helper()
	here, there := net.Pipe()
	w := &pipeWriter{conn: there, header: http.Header{}, ahead: ahead}
	r := upgradeRequest("graphql-ws")
	done := make(chan error, 1)
	go func() { done <- s.Accept(w, r, ss) }()
	p := &peer{t: t, conn: here}
	br := bufio.NewReader(here)
	res, err := http.ReadResponse(br, r)
	if err != nil {
		t.Fatalf("handshake: %v", err)
	}
	if err := <-done; err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("handshake: status %d, error %v", res.StatusCode, err)
	}
	if br.Buffered() != 0 {
		t.Fatal("frames came along with the handshake")
	}
	return p
}

func (p *peer) listen() *peer {
	go func() {
		br := bufio.NewReader(p.conn)
		for {
			op, payload, err := readServerFrame(br)
			if err != nil {
				p.mu.Lock()
				if !p.closed {
					p.heard = append(p.heard, "CUT")
				}
				p.mu.Unlock()
				p.conn.Close()
				return
			}
			p.mu.Lock()
			mute := p.mute
			switch op {
			case opPing:
				if mute {
					p.heard = append(p.heard, "PING")
				}
			case opPong:
				p.heard = append(p.heard, "PONG")
			case opClose:
				p.closed = true
				p.heard = append(p.heard, fmt.Sprintf("CLOSE %d", binary.BigEndian.Uint16(payload)))
			default:
				p.heard = append(p.heard, string(payload))
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

// send writes one frame; an error is the end of the connection, which the peer
// hears otherwise.
func (p *peer) send(op byte, payload []byte) error { return p.write(frameOf(true, op, payload)) }

func (p *peer) say(frames ...string) {
	for _, f := range frames {
		_ = p.send(opText, []byte(f))
	}
}

func (p *peer) write(b []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	_, err := p.conn.Write(b)
	return err
}

// next takes the first line that was heard and not taken yet.
func (p *peer) next() string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.heard) == 0 {
		return ""
	}
	line := p.heard[0]
	p.heard = p.heard[1:]
	return line
}

func (p *peer) expect(lines ...string) {
	p.t.Helper()
	for _, want := range lines {
		if got := p.next(); got != want {
			p.t.Errorf("heard %s\nwant  %s", got, want)
		}
	}
}

func (p *peer) expectSilence() {
	p.t.Helper()
	if got := p.next(); got != "" {
		p.t.Errorf("heard %s\nwant  silence", got)
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
		return 0, nil, errors.New("not a whole, unmasked frame")
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

// pipeWriter is a ResponseWriter that gives up a net.Pipe.
type pipeWriter struct {
	conn   net.Conn
	header http.Header
	wrote  bool
	err    error
	ahead  []byte
	before func() // called before the connection is given up
}

func (w *pipeWriter) Header() http.Header         { return w.header }
func (w *pipeWriter) WriteHeader(int)             { w.wrote = true }
func (w *pipeWriter) Write(p []byte) (int, error) { w.wrote = true; return len(p), nil }
func (w *pipeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.before != nil {
		w.before()
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	br := bufio.NewReader(io.MultiReader(bytes.NewReader(w.ahead), w.conn))
	if _, err := br.Peek(len(w.ahead)); err != nil {
		return nil, nil, err
	}
	return w.conn, bufio.NewReadWriter(br, bufio.NewWriter(w.conn)), nil
}

// A script is a Session told by what peers send it what to do.
type script struct {
	t *testing.T

	mu      sync.Mutex
	ctx     context.Context // of the last Init
	inits   []string
	streams []*scriptStream
	running int
	release chan struct{} // lets {wait} and {stubborn} answer
}

func newScript(t *testing.T) *script { return &script{t: t, release: make(chan struct{})} }

func (s *script) Init(ctx context.Context, payload []byte) (context.Context, error) {
	s.mu.Lock()
	s.inits = append(s.inits, string(payload))
	s.ctx = ctx
	s.mu.Unlock()
	var p struct {
		Authorization string
		TTL           string `json:"ttl"`
	}
	if payload != nil {
		if err := json.Unmarshal(payload, &p); err != nil {
			return nil, err
		}
	}
	switch p.Authorization {
	case "wrong":
		return nil, errors.New("the secret is 42")
	case "panic":
		panic("Init")
	}
	if p.TTL != "" {
		d, err := time.ParseDuration(p.TTL)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, d)
		context.AfterFunc(ctx, cancel)
		return ctx, nil
	}
	return ctx, nil
}

var cannedAnswers = map[string]string{
	"{info{version}}": `{"data":{"info":{"version":"0.68.0"}}}`,
	`{blockchain{account(address:"x"){info{balance}}}}`: `{"errors":[{"message":"Invalid account address","path":["blockchain","account"]}],"data":{"blockchain":{"account":null}}}`,
}

func requestError(message, code string) *RequestError {
	first := fmt.Sprintf(`{"message":%q,"extensions":{"code":%q}}`, message, code)
	return &RequestError{Errors: []json.RawMessage{json.RawMessage(first), json.RawMessage(`{"message":"a second one"}`)}}
}

func (s *script) Start(ctx context.Context, payload []byte, wake func()) (Operation, error) {
	if payload == nil {
		return Operation{}, requestError("Start without payload", "BAD_REQUEST")
	}
	var p struct{ Query string }
	if err := json.Unmarshal(payload, &p); err != nil {
		return Operation{}, fmt.Errorf("start: %w", requestError("Query is not a string", "BAD_REQUEST"))
	}
	switch q := p.Query; {
	case q == "subscription{blocks{":
		return Operation{}, requestError("Syntax Error: Expected Name, found <EOF>.", "GRAPHQL_PARSE_FAILED")
	case q == "{lost}":
		err := requestError("Source lost", "STREAM_GAP")
		err.Lost = true
		return Operation{}, err
	case q == "{broken}":
		return Operation{}, errors.New("the database is down")
	case q == "{neither}":
		return Operation{}, nil
	case q == "{panic in start}":
		panic("Start")
	case q == "{panic in run}":
		return Operation{Run: func(context.Context) []byte { panic("Run") }}, nil
	case q == "{nil}":
		return Operation{Run: func(context.Context) []byte { return nil }}, nil
	case q == "{wait}":
		return Operation{Run: func(ctx context.Context) []byte {
			select {
			case <-s.release:
				return []byte(`{"data":{"wait":1}}`)
			case <-ctx.Done():
				return []byte(`{"data":{"cancelled":1}}`)
			}
		}}, nil
	case q == "{stubborn}":
		return Operation{Run: func(context.Context) []byte { <-s.release; return []byte(`{}`) }}, nil
	case strings.HasPrefix(q, "subscription"):
		st := &scriptStream{script: s, ctx: ctx, wake: wake}
		s.mu.Lock()
		s.streams = append(s.streams, st)
		s.running++
		s.mu.Unlock()
		wake() // before it runs: must be harmless
		return Operation{Stream: st}, nil
	default:
		return Operation{Run: func(context.Context) []byte { return []byte(cannedAnswers[q]) }}, nil
	}
}

// scriptStream gives what was pushed, and checks how it is called.
type scriptStream struct {
	script *script
	ctx    context.Context
	wake   func()

	mu     sync.Mutex
	queue  []string
	err    error
	asked  int
	inside bool
	closed bool
	gate   chan struct{} // where set, Next waits for it
	entry  chan struct{}
	panics bool
}

func (s *scriptStream) Next() ([]byte, error) {
	s.mu.Lock()
	if s.inside || s.closed {
		s.script.t.Error("Next while another call is under way, or after Close")
	}
	s.inside = true
	s.asked++
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = false
	if s.panics {
		panic("Next")
	}
	if len(s.queue) > 0 {
		payload := s.queue[0]
		s.queue = s.queue[1:]
		return []byte(payload), nil
	}
	return nil, s.err
}

func (s *scriptStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inside {
		s.script.t.Error("Close twice, or while Next is under way")
	}
	if s.ctx.Err() == nil {
		s.script.t.Error("Close while the operation's context goes on")
	}
	s.closed = true
	s.script.mu.Lock()
	s.script.running--
	s.script.mu.Unlock()
	s.wake() // after the end: must be harmless
	if s.panics {
		panic("Close")
	}
}

func (s *scriptStream) push(payloads ...string) {
	s.mu.Lock()
	s.queue = append(s.queue, payloads...)
	s.mu.Unlock()
	s.wake()
}

func (s *scriptStream) end(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.wake()
}

func (s *scriptStream) timesAsked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// stream waits for the nth stream that was started, from 1.
func (s *script) stream(n int) *scriptStream {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > len(s.streams) {
		s.t.Fatalf("stream %d was not started", n)
	}
	return s.streams[n-1]
}

func (s *script) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// A notebook is a log that tests look into.
type notebook struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notebook) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notebook) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

func (n *notebook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(n, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// shutdown ends a server, which must not take long.
func shutdown(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// left waits for a server's connections to be gone, without ending any.
func left(s *Server) int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sockets
}

package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A script is a Session told by what peers send it what to do.
type script struct {
	t *testing.T

	mu      sync.Mutex
	ctx     context.Context // of the last Init
	inits   []string
	streams []*scriptStream
	running int
	queries int
	release chan struct{} // lets {wait} and {stubborn} answer

	shared  bool   // by several connections
	sockets int    // that are open
	opened  string // the protocol
	limits  []string
	closed  bool
	why     error
}

func newScript(t *testing.T) *script { return &script{t: t, release: make(chan struct{})} }

func (s *script) Opened(ctx context.Context, protocol string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != "" && !s.shared || protocol == "" {
		s.t.Error("Opened twice, or without a protocol")
	}
	s.opened = protocol
	s.sockets++
}

func (s *script) Limit(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkOpen("Limit")
	s.limits = append(s.limits, name)
}

func (s *script) Closed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkOpen("Closed")
	if (s.running > 0 || s.queries > 0) && !s.shared {
		s.t.Errorf("Closed while %d streams and %d queries run", s.running, s.queries)
	}
	s.sockets--
	s.closed, s.why = true, why
}

// checkOpen is called with mu held: nothing comes before Opened or after Closed.
func (s *script) checkOpen(what string) {
	if s.opened == "" || s.closed && !s.shared {
		s.t.Errorf("%s before Opened or after Closed", what)
	}
}

// ended waits for the end of the connection, and returns what Closed was given.
func (s *script) ended() error {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.t.Error("Closed was not called")
	}
	return s.why
}

// query counts a query while it runs.
func (s *script) query(run func(context.Context) []byte) Operation {
	return Operation{Run: func(ctx context.Context) []byte {
		s.mu.Lock()
		s.queries++
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.queries--
			s.mu.Unlock()
		}()
		return run(ctx)
	}}
}

func (s *script) Init(ctx context.Context, payload []byte) (context.Context, error) {
	s.mu.Lock()
	s.checkOpen("Init")
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
	case "later":
		err := requestError("Too many requests.", "RATE_LIMITED")
		err.Lost = true
		return nil, err
	case "trouble":
		return nil, requestError("Database is down", "INTERNAL_SERVER_ERROR")
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

func (s *script) Start(ctx context.Context, payload []byte) (Operation, error) {
	s.mu.Lock()
	s.checkOpen("Start")
	s.mu.Unlock()
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
		return s.query(func(ctx context.Context) []byte {
			select {
			case <-s.release:
				return []byte(`{"data":{"wait":1}}`)
			case <-ctx.Done():
				return []byte(`{"data":{"cancelled":1}}`)
			}
		}), nil
	case q == "{stubborn}":
		return s.query(func(context.Context) []byte { <-s.release; return []byte(`{}`) }), nil
	case strings.HasPrefix(q, "subscription"):
		return Operation{Open: func(wake func()) (Stream, error) {
			st := &scriptStream{script: s, ctx: ctx, wake: wake}
			s.mu.Lock()
			s.streams = append(s.streams, st)
			s.running++
			s.mu.Unlock()
			wake() // before it runs: must be harmless
			return st, nil
		}}, nil
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
	cursor string
	asked  int

	pending *RequestError
	inside  bool
	closed  bool
	why     error
	gate    chan struct{} // where set, Next waits for it
	leaving chan struct{} // where set, Close waits for it
	panics  bool
	exits   bool // Next ends its goroutine
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
	if s.exits {
		runtime.Goexit()
	}
	if len(s.queue) > 0 {
		payload := s.queue[0]
		s.queue = s.queue[1:]
		return []byte(payload), nil
	}
	return nil, s.err
}

func (s *scriptStream) Cursor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.script.t.Error("Cursor after Close")
	}
	if s.panics {
		panic("Cursor")
	}
	return s.cursor
}

func (s *scriptStream) Pending() *RequestError {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inside {
		s.script.t.Error("Pending after Close, or while Next is under way")
	}
	return s.pending
}

func (s *scriptStream) Close(why error) {
	if s.leaving != nil {
		<-s.leaving
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inside {
		s.script.t.Error("Close twice, or while Next is under way")
	}
	if s.ctx.Err() == nil {
		s.script.t.Error("Close while the operation's context goes on")
	}
	s.closed, s.why = true, why
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

// at moves the stream to a cursor.
func (s *scriptStream) at(cursor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = cursor
}

// closedBy returns what Close was given.
func (s *scriptStream) closedBy() error {
	s.script.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.script.t.Error("Close was not called")
	}
	return s.why
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

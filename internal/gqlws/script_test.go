package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

package gqlws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A fakeSession is a Session that peers control with the content of their messages.
type fakeSession struct {
	t *testing.T

	mu        sync.Mutex
	ctx       context.Context // context of the last Init
	inits     []string
	streams   []*fakeStream
	openCount int
	queries   int
	release   chan struct{} // closed to make the queries {wait} and {stubborn} return
	shared    bool          // several connections use the session
	searches  bool          // streams that open search
	sockets   int           // open connections
	opened    string        // protocol passed to Opened
	left      func() bool   // passed to Opened
	limits    []string
	blocked   atomic.Bool // argument of Blocked
	closed    bool
	why       error
}

func newFakeSession(t *testing.T) *fakeSession {
	return &fakeSession{t: t, release: make(chan struct{})}
}

func (s *fakeSession) Opened(ctx context.Context, protocol string, left func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened != "" && !s.shared || protocol == "" {
		s.t.Error("Opened was called twice or without a protocol")
	}
	s.opened, s.left = protocol, left
	s.sockets++
}

func (s *fakeSession) Blocked(blocked bool) { s.blocked.Store(blocked) }

func (s *fakeSession) Limit(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkOpen("Limit")
	s.limits = append(s.limits, name)
}

func (s *fakeSession) Closed(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkOpen("Closed")
	if (s.openCount > 0 || s.queries > 0) && !s.shared {
		s.t.Errorf("Closed was called while %d streams and %d queries were running", s.openCount, s.queries)
	}
	s.sockets--
	s.closed, s.why = true, why
}

// checkOpen checks that a method is called after Opened and before Closed. The caller must hold s.mu.
func (s *fakeSession) checkOpen(method string) {
	if s.opened == "" || s.closed && !s.shared {
		s.t.Errorf("%s was called before Opened or after Closed", method)
	}
}

// closeReason waits until all goroutines are blocked and returns the argument of Closed, which must have been called.
func (s *fakeSession) closeReason() error {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.t.Error("Closed was not called")
	}
	return s.why
}

// queryMemory is the Operation.Memory of a query.
const queryMemory = 5000

// query returns an Operation that calls run. While it runs, it is counted in s.queries.
func (s *fakeSession) query(run func(context.Context) []byte) Operation {
	return Operation{Memory: queryMemory, Run: func(ctx context.Context) []byte {
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

func (s *fakeSession) Init(ctx context.Context, payload []byte) (context.Context, error) {
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

var fixedResponses = map[string]string{
	"{info{version}}": `{"data":{"info":{"version":"0.68.0"}}}`,
	`{blockchain{account(address:"x"){info{balance}}}}`: `{"errors":[{"message":"Invalid account address",` +
		`"path":["blockchain","account"]}],"data":{"blockchain":{"account":null}}}`,
}

func (s *fakeSession) Start(ctx context.Context, payload []byte) (Operation, error) {
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
		return Operation{Open: func(wake xsync.Waker) (Stream, error) {
			st := &fakeStream{session: s, ctx: ctx, wake: wake}
			s.mu.Lock()
			st.behind = s.searches
			s.streams = append(s.streams, st)
			s.openCount++
			s.mu.Unlock()
			wake.Wake() // wake may be called before Open has returned
			return st, nil
		}}, nil
	default:
		return Operation{Run: func(context.Context) []byte { return []byte(fixedResponses[q]) }}, nil
	}
}

// stream waits until all goroutines are blocked and returns the nth stream, counted from 1.
func (s *fakeSession) stream(n int) *fakeStream {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > len(s.streams) {
		s.t.Fatalf("stream %d was not started", n)
	}
	return s.streams[n-1]
}

func (s *fakeSession) openStreams() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openCount
}

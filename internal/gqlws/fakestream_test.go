package gqlws

import (
	"context"
	"runtime"
	"sync"
	"testing/synctest"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A fakeStream returns the payloads that push adds. It checks that its methods are called in a valid order.
type fakeStream struct {
	session *fakeSession
	ctx     context.Context
	wake    xsync.Waker

	mu           sync.Mutex
	queue        []string
	err          error
	cursor       string
	nextCalls    int
	pending      *RequestError
	inCall       bool
	closed       bool
	why          error
	blockNext    chan struct{} // if set, Next waits until it is closed
	blockClose   chan struct{} // if set, Close waits until it is closed
	panicInCalls bool
	goexitInNext bool   // Next calls runtime.Goexit
	search       func() // set by startSearching
	behind       bool   // the value of fakeSession.searches when the stream was opened
}

func (s *fakeStream) Next() (payload []byte, more bool, err error) {
	s.mu.Lock()
	if s.inCall || s.closed {
		s.session.t.Error("Next was called during another call or after Close")
	}
	s.inCall = true
	s.nextCalls++
	gate, search := s.blockNext, s.search
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if search != nil {
		search()
		s.wake.Wake()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inCall = false
	if s.panicInCalls {
		panic("Next")
	}
	if s.goexitInNext {
		runtime.Goexit()
	}
	if len(s.queue) > 0 {
		payload := s.queue[0]
		s.queue = s.queue[1:]
		return []byte(payload), len(s.queue) > 0 || s.err != nil, nil
	}
	return nil, search != nil, s.err
}

func (s *fakeStream) Behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind || s.search != nil
}

func (s *fakeStream) Position() (cursor string, own *RequestError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inCall {
		s.session.t.Error("Position was called after Close or during Next")
	}
	if s.panicInCalls {
		panic("Position")
	}
	return s.cursor, s.pending
}

func (s *fakeStream) Close(why error) {
	if s.blockClose != nil {
		<-s.blockClose
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.inCall {
		s.session.t.Error("Close was called twice or during Next")
	}
	if s.ctx.Err() == nil {
		s.session.t.Error("Close was called before the operation's context was canceled")
	}
	s.closed, s.why = true, why
	s.session.mu.Lock()
	s.session.openCount--
	s.session.mu.Unlock()
	s.wake.Wake() // wake may be called after the end
	if s.panicInCalls {
		panic("Close")
	}
}

func (s *fakeStream) push(payloads ...string) {
	s.mu.Lock()
	s.queue = append(s.queue, payloads...)
	s.mu.Unlock()
	s.wake.Wake()
}

// startSearching makes Next call search and then find nothing, but have more, until stopSearching is called.
func (s *fakeStream) startSearching(search func()) {
	s.mu.Lock()
	s.search = search
	s.mu.Unlock()
	s.wake.Wake()
}

func (s *fakeStream) stopSearching(payload string) {
	s.mu.Lock()
	s.search = nil
	s.mu.Unlock()
	s.push(payload)
}

func (s *fakeStream) end(err error) {
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	s.wake.Wake()
}

func (s *fakeStream) setCursor(cursor string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cursor = cursor
}

// closeReason waits until all goroutines are blocked and returns the argument of Close, which must have been called.
func (s *fakeStream) closeReason() error {
	s.session.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.session.t.Error("Close was not called")
	}
	return s.why
}

func (s *fakeStream) countNextCalls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextCalls
}

package gqlws

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// coder/websocket may respond to the peer's close frame at any time. Its response must not be written inside another
// frame, and no frame may follow it.
func TestCloseResponseFollowsCompleteFrames(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	st := ss.waitStream(testContext(t), 1)
	shrinkSendBuffers(s)
	for i := range 50 {
		st.push(numberedPayload(i, 100_000))
	}
	c.write(closeFrame(1000, "bye"))
	for i := 0; ; i++ {
		op, payload, err := readServerFrame(c.br)
		if err != nil {
			t.Fatalf("reading frame %d failed: %v", i, err)
		}
		if op == opClose {
			break
		}
		if want := `{"type":"data","id":"a","payload":` + numberedPayload(i, 100_000) + `}`; string(payload) != want {
			t.Fatalf("frame %d: received %.60s, want %.60s", i, payload, want)
		}
	}
	if _, _, err := readServerFrame(c.br); err == nil {
		t.Error("received a frame after the close frame")
	}
	if why := <-ss.closed; why != nil {
		t.Errorf("Session.Closed received %v, want nil", why)
	}
	shutdown(t, s)
}

// An endlessStream is a Stream. Its Next always returns the same payload.
type endlessStream []byte

func (s endlessStream) Next() ([]byte, bool, error)     { return s, true, nil }
func (endlessStream) Behind() bool                      { return false }
func (endlessStream) Position() (string, *RequestError) { return "", nil }
func (endlessStream) Close(error)                       {}

// An endlessSession is a Session that starts an endlessStream for each operation.
type endlessSession struct {
	closeSession
	stream endlessStream
}

func (s endlessSession) Start(context.Context, []byte) (Operation, error) {
	return Operation{Open: func(xsync.Waker) (Stream, error) { return s.stream, nil }}, nil
}

func TestPeerCloseFrameIsAnsweredWhileServerSendsEndlessStream(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the response does not depend on a free processor
	s, ss := NewServer(withoutPings()), endlessSession{newCloseSession(t), endlessStream(numberedPayload(0, 100_000))}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	c.expect(`{"type":"data","id":"a","payload":` + string(ss.stream) + `}`)
	c.write(closeFrame(1000, "bye"))
	const most = 1000 // more frames than fit in the kernel's buffers
	for n := 0; ; n++ {
		op, _, err := readServerFrame(c.br)
		if err != nil || n == most {
			t.Fatalf("no close frame after %d frames: %v", n, err)
		}
		if op == opClose {
			break
		}
	}
	if why := <-ss.closed; why != nil {
		t.Errorf("Session.Closed received %v, want nil", why)
	}
	shutdown(t, s)
}

// takeWriter waits until c has nothing to write and then reserves the role of the writer for the test, which can call
// gather and writeFrames itself.
func takeWriter(ctx context.Context, t *testing.T, c *conn, st *fakeStream) {
	t.Helper()
	eventually(ctx, t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if st.countNextCalls() == 0 || c.hasWriter {
			return false
		}
		c.hasWriter = true
		return true
	})
}

func TestCloseFrameWaitsForCurrentWrite(t *testing.T) {
	s, ss := NewServer(withoutPings()), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := testContext(t)
	c := dialLoopback(t, url)
	st := ss.waitStream(ctx, 1)
	cn := onlyConn(s)
	takeWriter(ctx, t, cn, st)
	st.push("1")
	var b []byte
	if next := cn.gather(&b, batchSize); next != taskSend {
		t.Fatalf("gather returned task %d, want %d", next, taskSend)
	}
	c.write(closeFrame(1000, "bye"))
	// The wait is short, because nothing must arrive.
	_ = c.nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.br.Peek(1); err == nil {
		t.Fatalf("received %x before the current write ended, want nothing", got)
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(testTimeout))
	if !cn.writeFrames(b) {
		t.Error("writeFrames failed")
	}
	c.expect(`{"type":"data","id":"a","payload":1}`, "CLOSE 1000 bye")
	shutdown(t, s)
}

func TestNoWriteAfterCloseFrameOrCut(t *testing.T) {
	for name, end := range map[string]func(*conn){
		"after a close frame": (*conn).beginCloseFrame,
		"before a close frame that waits for the current write": func(c *conn) {
			c.inWrite = true
			go c.beginCloseFrame()
			synctest.Wait()
		},
		"after a cut": func(c *conn) { c.phase = phaseClosed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
				defer c.cancel()
				c.net = &netConn{}
				end(c)
				var b []byte
				c.mu.Lock()
				c.queueMessage([]byte("late"))
				c.scheduleWriter()
				writing, inWrite := c.hasWriter, c.inWrite
				c.mu.Unlock()
				if writing {
					t.Error("a writer was scheduled, want none")
				}
				if next := c.gather(&b, batchSize); next != taskNone { // by a worker that was scheduled before
					t.Errorf("gather returned %q and task %d, want nothing", b, next)
				}
				if c.inWrite != inWrite {
					t.Errorf("inWrite is %v, want %v", c.inWrite, inWrite)
				}
				c.endWrite()
				c.wg.Wait()
			})
		})
	}
}

// If coder/websocket has already responded to the peer's close frame, the last messages must not be written.
func TestNoDataAfterCloseFrame(t *testing.T) {
	here, there := net.Pipe()
	received := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(here)
		received <- b
	}()
	c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
	defer c.cancel()
	c.net = &netConn{Conn: there}
	c.beginCloseFrame()
	if ok, _, _ := c.writeLastMessages(ending{cause: causeShutdown}); ok {
		t.Error("writeLastMessages succeeded after a close frame")
	}
	there.Close()
	if b := <-received; len(b) > 0 {
		t.Errorf("received %q, want nothing", b)
	}
}

func TestCloseFrameWaitsForLastMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
		defer c.cancel()
		c.net = &netConn{Conn: there}
		go func() {
			if ok, _, _ := c.writeLastMessages(ending{cause: causeShutdown}); !ok {
				t.Error("writeLastMessages failed")
			}
		}()
		synctest.Wait()
		waited := make(chan struct{})
		go func() { c.beginCloseFrame(); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("beginCloseFrame did not wait for the last messages")
		default:
		}
		if _, _, err := readServerFrame(bufio.NewReader(here)); err != nil {
			t.Error(err)
		}
		<-waited
	})
}

func TestPeerThatClosesWithoutReadingIsDisconnected(t *testing.T) {
	o := testOptions
	o.WriteTimeout = time.Second // the peer closes before on a busy machine, too
	s, ss := NewServer(o), newCloseSession(t)
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	ctx := testContext(t)
	st := ss.waitStream(ctx, 1)
	cn := onlyConn(s)
	st.push(numberedPayload(1, 10_000_000)) // more than fits in the kernel's buffers
	eventually(ctx, t, func() bool {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		return cn.inWrite
	})
	c.write(closeFrame(1000, "bye"))
	select {
	case why := <-ss.closed:
		if !errors.Is(why, ErrCut) || !strings.Contains(why.Error(), "write failed") {
			t.Errorf("Session.Closed received %v, want ErrCut and \"write failed\"", why)
		}
	case <-ctx.Done():
		t.Fatal("the connection is still open after WriteTimeout")
	}
	shutdown(t, s)
}

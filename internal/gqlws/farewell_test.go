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
)

// The library answers a close frame when it likes: behind the frame that is half
// out, and as the last one.
func TestCloseFrameStandsBehindWholeFrames(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	st := ss.started(bounded(t), 1)
	narrow(s)
	for i := range 50 {
		st.push(numbered(i, 100_000))
	}
	c.write(closeFrame(1000, "bye"))
	for i := 0; ; i++ {
		op, payload, err := readServerFrame(c.br)
		if err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		if op == opClose {
			break
		}
		if want := `{"type":"data","id":"a","payload":` + numbered(i, 100_000) + `}`; string(payload) != want {
			t.Fatalf("%d: heard %.60s", i, payload)
		}
	}
	if _, _, err := readServerFrame(c.br); err == nil {
		t.Error("a frame came behind the close frame")
	}
	if why := <-ss.whys; why != nil {
		t.Errorf("closed with %v", why)
	}
	shutdown(t, s)
}

// A spring is a stream that always has more.
type spring []byte

func (s spring) Next() ([]byte, error) { return s, nil }
func (spring) Cursor() string          { return "" }
func (spring) Pending() *RequestError  { return nil }
func (spring) Close(error)             {}

// A gushing session has a spring for whoever starts anything.
type gushing struct {
	closing
	spring spring
}

func (s gushing) Start(context.Context, []byte) (Operation, error) {
	return Operation{Open: func(func()) (Stream, error) { return s.spring, nil }}, nil
}

func TestCloseFrameIsAnsweredAmidAnEndlessStream(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that nobody is served by chance
	s, ss := NewServer(withoutPings()), gushing{newClosing(t), spring(numbered(0, 100_000))}
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	c.expect(`{"type":"data","id":"a","payload":` + string(ss.spring) + `}`)
	c.write(closeFrame(1000, "bye"))
	const most = 1000 // more than the kernel holds
	for n := 0; ; n++ {
		op, _, err := readServerFrame(c.br)
		if err != nil || n == most {
			t.Fatalf("not answered after %d frames: %v", n, err)
		}
		if op == opClose {
			break
		}
	}
	if why := <-ss.whys; why != nil {
		t.Errorf("closed with %v", why)
	}
	shutdown(t, s)
}

// seize has the test be the writer of a connection that has nothing to write.
func seize(ctx context.Context, t *testing.T, c *conn, st *scriptStream) {
	t.Helper()
	eventually(ctx, t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if st.timesAsked() == 0 || c.writing {
			return false
		}
		c.writing = true
		return true
	})
}

func TestCloseFrameWaitsForWhatIsHalfOut(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	st := ss.started(ctx, 1)
	cn := theConn(s)
	seize(ctx, t, cn, st)
	st.push("1")
	var b []byte
	if next := cn.gather(&b, batch); next != taskSend {
		t.Fatalf("task %d", next)
	}
	c.write(closeFrame(1000, "bye"))
	// A short wait for nothing to come.
	_ = c.nc.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if got, err := c.br.Peek(1); err == nil {
		t.Fatalf("heard %x", got)
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(patience))
	if !cn.send(b) {
		t.Error("not sent")
	}
	c.expect(`{"type":"data","id":"a","payload":1}`, "CLOSE 1000 bye")
	shutdown(t, s)
}

func TestNothingIsWrittenAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*conn){
		"behind a close frame": (*conn).waitShut,
		"ahead of a close frame that waits for what is half out": func(c *conn) {
			c.sending = true
			go c.waitShut()
			synctest.Wait()
		},
		"when it was cut": func(c *conn) { c.broken = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
				defer c.cancel()
				c.net = &netConn{}
				end(c)
				var b []byte
				c.mu.Lock()
				c.push([]byte("late"))
				c.kick()
				writing, sending := c.writing, c.sending
				c.mu.Unlock()
				if writing {
					t.Error("a writer was called")
				}
				if next := c.gather(&b, batch); next != taskNone { // by a hand that was called before
					t.Errorf("gathered %q, task %d", b, next)
				}
				if c.sending != sending {
					t.Error("what is going out was taken for sent")
				}
				c.told()
				c.wg.Wait()
			})
		})
	}
}

// A peer that leaves while it is told why it has to is told before the close
// frame, or not at all.
func TestLastWordsDoNotFollowACloseFrame(t *testing.T) {
	here, there := net.Pipe()
	heard := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(here)
		heard <- b
	}()
	c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
	defer c.cancel()
	c.net = &netConn{Conn: there}
	c.waitShut()
	if said, _, _ := c.lastWords(ending{cause: causeShutdown}); said {
		t.Error("they were said, it says")
	}
	there.Close()
	if b := <-heard; len(b) > 0 {
		t.Errorf("heard %q", b)
	}
}

func TestCloseFrameWaitsForTheLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
		defer c.cancel()
		c.net = &netConn{Conn: there}
		go func() {
			if said, _, _ := c.lastWords(ending{cause: causeShutdown}); !said {
				t.Error("they were not said")
			}
		}()
		synctest.Wait()
		waited := make(chan struct{})
		go func() { c.waitShut(); close(waited) }()
		synctest.Wait()
		select {
		case <-waited:
			t.Error("a close frame came in between")
		default:
		}
		if _, _, err := readServerFrame(bufio.NewReader(here)); err != nil {
			t.Error(err)
		}
		<-waited
	})
}

func TestPeerThatSaysGoodbyeAndReadsNothingIsCut(t *testing.T) {
	o := testOptions
	o.WriteTimeout = 200 * time.Millisecond
	s, ss := NewServer(o), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	c := dialLoopback(t, url)
	ctx := bounded(t)
	st := ss.started(ctx, 1)
	cn := theConn(s)
	st.push(numbered(1, 10_000_000)) // more than the kernel holds
	eventually(ctx, t, func() bool {
		cn.mu.Lock()
		defer cn.mu.Unlock()
		return cn.sending
	})
	c.write(closeFrame(1000, "bye"))
	select {
	case why := <-ss.whys:
		if !errors.Is(why, ErrCut) || !strings.Contains(why.Error(), "write failed") {
			t.Errorf("closed with %v", why)
		}
	case <-ctx.Done():
		t.Fatal("it is still there")
	}
	shutdown(t, s)
}

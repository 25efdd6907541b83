//go:build unix

package gqlws

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hold keeps whoever asks a stream for its next payload, until the gate is closed.
func hold(st *scriptStream, gate chan struct{}) {
	st.mu.Lock()
	st.gate = gate
	st.mu.Unlock()
	st.push("1")
}

func TestCrewHasSoManyHandsAndNoMore(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	s.crew.most = 2
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	free := ss.started(ctx, 1)
	const busy = 5
	for n := range busy {
		dialLoopback(t, url)
		st := ss.started(ctx, n+2)
		eventually(ctx, t, func() bool { return st.timesAsked() == 1 })
	}
	gate := make(chan struct{})
	defer cutAll(t, s)
	defer close(gate)
	hold(ss.started(ctx, 2), gate)
	free.push("1") // there is another hand for
	c.expect(`{"type":"data","id":"a","payload":1}`)
	for n := range busy - 1 {
		hold(ss.started(ctx, n+3), gate)
	}
	s.crew.mu.Lock()
	defer s.crew.mu.Unlock()
	if s.crew.hands != 2 {
		t.Errorf("%d hands", s.crew.hands)
	}
}

func TestNoHandWaitsForAPeer(t *testing.T) {
	for name, stall := range map[string]func(*caller, *scriptStream){
		"that reads nothing": func(_ *caller, st *scriptStream) { st.push(numbered(0, 10_000_000)) },
		"that answers no close frame": func(c *caller, _ *scriptStream) {
			c.say(strings.Repeat(" ", 600))
			c.expect(`{"type":"connection_error","id":null,"payload":{"message":"Message is larger than 512 bytes","extensions":{"code":"LIMIT_EXCEEDED"}}}`,
				"CLOSE 1009 message too big")
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := withoutPings()
			o.WriteTimeout = time.Hour
			s, ss := NewServer(o), newClosing(t)
			s.crew.most = 2
			url, _ := serveLoopback(t, s, ss)
			ctx := bounded(t)
			c := dialLoopback(t, url)
			st := ss.started(ctx, 1)
			for i := range s.crew.most {
				stalled := dialLoopback(t, url)
				its := ss.started(ctx, i+2)
				narrow(s)
				stall(stalled, its)
			}
			for i := range 3 { // in a moment, as a close frame is waited for but three seconds
				st.push(numbered(i, 10))
				c.expect(`{"type":"data","id":"a","payload":` + numbered(i, 10) + `}`)
			}
			if len(ss.whys) > 0 {
				t.Errorf("the others were heard when one was given up: %v", <-ss.whys)
			}
			cutAll(t, s)
		})
	}
}

// What a peer does not take at once is kept while the same hand writes to others.
func TestSlowPeersGetTheirOwnFrames(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	s.crew.most = 1
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	const peers, n = 4, 200
	var callers []*caller
	for i := range peers {
		callers = append(callers, dialLoopback(t, url))
		ss.started(ctx, i+1)
	}
	narrow(s)
	for k := range n {
		for i := range peers {
			ss.started(ctx, i+1).push(numbered(i*n+k, 5000))
		}
	}
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			for k := range n {
				_, got, err := readServerFrame(c.br)
				if want := `{"type":"data","id":"a","payload":` + numbered(i*n+k, 5000) + `}`; err != nil || string(got) != want {
					t.Errorf("peer %d, frame %d: heard %.60s, %v", i, k, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	cutAll(t, s)
}

func TestHandWritesABurstAtOnce(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	c := dialLoopback(t, url)
	st := ss.started(ctx, 1)
	cn := theConn(s)
	seize(ctx, t, cn, st)
	st.push("1", "2", "3")
	p := newParcel()
	cn.attend(p)
	var want []byte
	for i := range 3 {
		want = appendText(want, fmt.Appendf(nil, `{"type":"data","id":"a","payload":%d}`, i+1))
	}
	if string(p.bytes) != string(want) {
		t.Errorf("wrote %q", p.bytes)
	}
	c.nc.Close()
	shutdown(t, s)
}

func TestWriteThatFailsIsTheReason(t *testing.T) {
	s, ss := NewServer(withoutPings()), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	dialLoopback(t, url)
	st := ss.started(bounded(t), 1)
	if err := theConn(s).net.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	st.push("1")
	if why := <-ss.whys; !errors.Is(why, ErrGone) || !strings.Contains(why.Error(), "write failed") {
		t.Errorf("closed with %v", why)
	}
	shutdown(t, s)
}

func TestUnixSocketIsWrittenToWithoutWaiting(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	if rawOf(there) != nil {
		t.Error("a pipe has no descriptor")
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if rawOf(nc) == nil {
		t.Error("nothing to write to without waiting")
	}
}

// A deadlined connection notes its deadlines for writes.
type deadlined struct {
	sink
	set []time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}

// What is left of it would fail the next write that does not wait.
func TestWriteThatWaitsTakesItsDeadlineBack(t *testing.T) {
	var d deadlined
	n := &netConn{Conn: &d, writeTimeout: time.Minute}
	if _, err := n.put([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if len(d.set) != 2 || d.set[0].IsZero() || !d.set[1].IsZero() {
		t.Errorf("deadlines: %v", d.set)
	}
}

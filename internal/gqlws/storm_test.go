package gqlws

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Peers of both protocols and all manners on real connections, while streams
// speak at any time and the Server shuts down in the midst of it: scriptStream
// checks how it is called.
func TestStormLeavesNothingBehind(t *testing.T) {
	o := testOptions
	o.KeepAlive = 20 * time.Millisecond
	o.MaxSockets = 100
	s := NewServer(o)
	storm, calm := context.WithCancel(t.Context())
	defer calm()

	var wg sync.WaitGroup
	scripts := make(map[string]*script)
	for protocol, words := range map[string]func(i int) string{
		"graphql-ws":           legacyWords,
		"graphql-transport-ws": modernWords,
	} {
		ss := newScript(t)
		ss.shared = true
		scripts[protocol] = ss
		url, _ := serveLoopback(t, s, ss)
		wg.Go(func() { babble(storm, ss) })
		for range 10 {
			wg.Go(func() {
				for storm.Err() == nil {
					stormyPeer(storm, strings.TrimPrefix(url, "http://"), protocol, words)
				}
			})
		}
	}

	ctx := bounded(t)
	for _, ss := range scripts {
		eventually(ctx, t, func() bool {
			ss.mu.Lock()
			defer ss.mu.Unlock()
			return len(ss.streams) >= 2500
		})
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for protocol, ss := range scripts {
		if n := ss.open(); n != 0 {
			t.Errorf("%s: %d streams are open after Shutdown", protocol, n)
		}
		if ss.sockets != 0 || ss.queries != 0 {
			t.Errorf("%s: %d Sessions are not closed, %d queries run", protocol, ss.sockets, ss.queries)
		}
	}
	calm()
	wg.Wait()
	if len(s.conns) != 0 || s.sockets != 0 {
		t.Errorf("%d connections, %d places are left", len(s.conns), s.sockets)
	}
}

// babble has the newest streams speak, and now and then end.
func babble(storm context.Context, ss *script) {
	for storm.Err() == nil {
		ss.mu.Lock()
		streams := ss.streams
		if len(streams) > 100 {
			streams = streams[len(streams)-100:]
		}
		ss.mu.Unlock()
		for _, st := range streams {
			if rand.IntN(50) == 0 {
				st.end(io.EOF)
			}
			st.push(`{"data":1}`)
		}
		runtime.Gosched()
	}
}

// legacyWords is what a peer says: everything at any time.
func legacyWords(int) string {
	id := rand.IntN(4)
	switch rand.IntN(9) {
	case 0:
		return `{"type":"connection_init"}`
	case 1, 2:
		return fmt.Sprintf(`{"id":%d,"type":"stop"}`, id)
	case 3:
		return fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"{wait}"}}`, id)
	default:
		return fmt.Sprintf(`{"id":%d,"type":"start","payload":{"query":"subscription{a}"}}`, id)
	}
}

// modernWords keeps to the rules most of the time, or the connection would end
// at once: init first, then subscribe and complete in turn for each id.
func modernWords(i int) string {
	id := i / 2 % 3
	switch n := rand.IntN(50); {
	case n == 0:
		return `{"type":"connection_init"}`
	case n == 1:
		return `{"type":"next"}`
	case i == 0:
		return `{"type":"connection_init"}`
	case n < 10:
		return `{"type":"ping","payload":{"a":1}}`
	case i%2 == 0:
		return fmt.Sprintf(`{"id":"%d","type":"complete"}`, id)
	case n < 20:
		return fmt.Sprintf(`{"id":"%d","type":"subscribe","payload":{"query":"{wait}"}}`, id)
	default:
		return fmt.Sprintf(`{"id":"%d","type":"subscribe","payload":{"query":"subscription{a}"}}`, id)
	}
}

// stormyPeer connects, says some of the words, and leaves in some way.
func stormyPeer(ctx context.Context, addr, protocol string, words func(i int) string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	if upgradeRequest(protocol).Write(nc) != nil {
		return
	}
	if rand.IntN(4) > 0 { // the others read nothing
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(nc)) }()
	}
	for i := range rand.IntN(60) {
		if ctx.Err() != nil {
			return
		}
		var b []byte
		switch word := []byte(words(i)); rand.IntN(12) {
		case 0:
			b = append(frameOf(true, opPing, []byte("x")), frameOf(true, opText, word)...)
		case 1:
			b = append(frameOf(true, opPong, nil), frameOf(true, opText, word)...)
		case 2:
			b = append(frameOf(false, opText, word[:5]), frameOf(true, 0, word[5:])...)
		default:
			b = frameOf(true, opText, word)
		}
		if _, err := nc.Write(b); err != nil {
			return
		}
		if rand.IntN(10) == 0 {
			runtime.Gosched()
		}
	}
	last := [][]byte{
		nil,
		{0x81},
		{0xff, 0xff},
		frameOf(true, opText, make([]byte, 600)),
		frameOf(true, opText, []byte(`{"type":"connection_terminate"}`)),
		closeFrame(1000, ""),
	}
	_, _ = nc.Write(last[rand.IntN(len(last))])
}

// Each peer asks in bits that come at any time, and is spoken to meanwhile:
// nothing is lost on the way to or from a reader that is parked.
func TestNothingIsLostBetweenParkingAndWriting(t *testing.T) {
	const n = 40
	o := withoutPings()
	o.MaxSockets = n
	s, ss := NewServer(o), newClosing(t)
	url, _ := serveLoopback(t, s, ss)
	ctx := bounded(t)
	storm, calm := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer calm()
	var wg sync.WaitGroup
	for i := range n {
		c := dialLoopback(t, url)
		st := ss.started(ctx, i+1)
		pongs, data := make(chan string, 1), make(chan string, 1)
		wg.Go(func() {
			for {
				op, payload, err := readServerFrame(c.br)
				if err != nil {
					return
				}
				if op == opPong {
					pongs <- string(payload)
				} else {
					data <- string(payload)
				}
			}
		})
		var both sync.WaitGroup
		both.Go(func() {
			for k := 0; storm.Err() == nil; k++ {
				want := fmt.Sprint(k)
				dribble(c, frameOf(true, opPing, []byte(want)))
				if got := hear(ctx, pongs); got != want {
					t.Errorf("%d: heard %q, want the pong of %s", i, got, want)
					return
				}
			}
		})
		both.Go(func() {
			for k := 0; storm.Err() == nil; k++ {
				size := 10
				if rand.IntN(300) == 0 {
					size = 1_000_000 // more than the kernel takes at once
				}
				payload := numbered(k, size)
				st.push(payload)
				if got, want := hear(ctx, data), `{"type":"data","id":"a","payload":`+payload+`}`; got != want {
					t.Errorf("%d: heard %.60q, want %.60q", i, got, want)
					return
				}
			}
		})
		wg.Go(func() { both.Wait(); c.nc.Close() })
	}
	wg.Wait()
	shutdown(t, s)
}

// dribble writes a frame, at times in two parts.
func dribble(c *caller, frame []byte) {
	if at := rand.IntN(3 * len(frame)); at < len(frame) {
		_, _ = c.nc.Write(frame[:at])
		frame = frame[at:]
		if rand.IntN(3) == 0 {
			for range 100 {
				runtime.Gosched()
			}
		}
	}
	_, _ = c.nc.Write(frame) // that it fails is heard
}

func hear(ctx context.Context, from <-chan string) string {
	select {
	case got := <-from:
		return got
	case <-ctx.Done():
		return "nothing"
	}
}

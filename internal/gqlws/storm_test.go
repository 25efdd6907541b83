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

// Peers of all manners on real connections, while streams speak at any time and
// the Server shuts down in the midst of it: scriptStream checks how it is called.
func TestStormLeavesNothingBehind(t *testing.T) {
	o := testOptions
	o.KeepAlive = 20 * time.Millisecond
	o.MaxSockets = 100
	s, ss := NewServer(o), newScript(t)
	url, returned := serveLoopback(t, s, ss)
	storm, calm := context.WithCancel(t.Context())
	defer calm()

	var wg sync.WaitGroup
	wg.Go(func() { // the source
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
	})
	for range 20 {
		wg.Go(func() {
			for storm.Err() == nil {
				stormyPeer(storm, strings.TrimPrefix(url, "http://"))
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-returned:
			case <-storm.Done():
				return
			}
		}
	})

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	eventually(ctx, t, func() bool {
		ss.mu.Lock()
		defer ss.mu.Unlock()
		return len(ss.streams) >= 5000
	})
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if n := ss.open(); n != 0 {
		t.Errorf("%d streams are open after Shutdown", n)
	}
	calm()
	wg.Wait()
}

// stormyPeer connects, says things at random, and leaves in some way.
func stormyPeer(ctx context.Context, addr string) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer nc.Close()
	if upgradeRequest("graphql-ws").Write(nc) != nil {
		return
	}
	if rand.IntN(4) > 0 { // the others read nothing
		go func() { _, _ = io.Copy(io.Discard, bufio.NewReader(nc)) }()
	}
	for range rand.IntN(60) {
		if ctx.Err() != nil {
			return
		}
		id := rand.IntN(4)
		var b []byte
		switch rand.IntN(12) {
		case 0:
			b = frameOf(true, opText, []byte(`{"type":"connection_init"}`))
		case 1:
			b = frameOf(true, opPing, []byte("x"))
		case 2:
			b = frameOf(true, opPong, nil)
		case 3, 4:
			b = frameOf(true, opText, fmt.Appendf(nil, `{"id":%d,"type":"stop"}`, id))
		case 5:
			b = frameOf(true, opText, fmt.Appendf(nil, `{"id":%d,"type":"start","payload":{"query":"{wait}"}}`, id))
		case 6:
			b = frameOf(false, opText, []byte(`{`))
			b = append(b, frameOf(true, 0, []byte(`"type":"connection_init"}`))...)
		default:
			b = frameOf(true, opText, fmt.Appendf(nil, `{"id":%d,"type":"start","payload":{"query":"subscription{a}"}}`, id))
		}
		if _, err := nc.Write(b); err != nil {
			return
		}
		if rand.IntN(10) == 0 {
			runtime.Gosched()
		}
	}
	last := [][]byte{nil, {0x81}, frameOf(true, opClose, []byte{3, 232}), frameOf(true, opText, []byte(`{"type":"connection_terminate"}`)),
		frameOf(true, opText, make([]byte, 600)), {0xff, 0xff}}
	_, _ = nc.Write(last[rand.IntN(len(last))])
}

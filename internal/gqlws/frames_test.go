package gqlws

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestHalfFrameIsCut(t *testing.T) {
	start := frameOf(true, opText, []byte(startA))
	part := frameOf(false, opText, []byte(`{"type":`))
	ping := frameOf(true, opPing, nil)
	for name, begin := range map[string][]byte{
		"one byte":           start[:1],
		"half a header":      start[:4],
		"half a payload":     start[:20],
		"a part":             part,
		"behind a message":   append(bytes.Clone(start), start[:1]...),
		"behind a ping":      append(bytes.Clone(ping), start[:3]...),
		"a part and a ping":  append(bytes.Clone(part), ping...),
		"half of a ping":     ping[:3],
		"a part and a frame": append(bytes.Clone(part), frameOf(false, 0, []byte(" "))...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss).listen()
				time.Sleep(20 * time.Second) // waiting is no fault
				if err := p.write(begin); err != nil {
					t.Fatal(err)
				}
				time.Sleep(testOptions.FrameTimeout - time.Millisecond)
				if left(s) != 1 {
					t.Error("cut before the time is over")
				}
				time.Sleep(time.Millisecond)
				if left(s) != 0 || ss.open() != 0 {
					t.Error("half a frame still holds a connection")
				}
			})
		})
	}
}

func TestHalfFrameSentWithTheHandshakeIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dialAs(t, s, newScript(t), "graphql-ws", frameOf(true, opText, []byte(startA))[:10]).listen()
		time.Sleep(testOptions.FrameTimeout - time.Millisecond)
		p.expectSilence()
		time.Sleep(time.Millisecond)
		p.expect("CUT")
	})
}

func TestDribblingDoesNotMoveTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t)).listen()
		begin := time.Now()
		_ = p.write(frameOf(false, opText, []byte(" ")))
		for left(s) == 1 && time.Since(begin) < time.Minute {
			_ = p.write(frameOf(false, 0, []byte(" ")))
			_ = p.write(frameOf(true, opPing, nil))
			time.Sleep(time.Second)
		}
		if d := time.Since(begin); d > testOptions.FrameTimeout {
			t.Errorf("it took %v to cut a peer that dribbles", d)
		}
	})
}

func TestSlowButWholeMessagesAreHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newScript(t)).listen()
		query := frameOf(true, opText, []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`))
		time.Sleep(time.Second) // so that no pong gets between the pieces
		for range 3 {
			for _, b := range [][]byte{query[:1], query[1:9], query[9:]} {
				if err := p.write(b); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
			}
			p.expect(`{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"1","payload":null}`)
			time.Sleep(39 * time.Second) // between two pings again
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

func TestLargeMessageIsToldAndClosed(t *testing.T) {
	frame := []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}","x":"` + strings.Repeat("x", 600) + `"}}`)
	fits := append(bytes.Clone(frame[:300]), `"}}`...)
	fits = append(fits, bytes.Repeat([]byte(" "), int(testOptions.MaxMessage)-len(fits))...)
	for name, tc := range map[string]struct {
		bytes []byte
		want  []string
	}{
		"as large as may be": {frameOf(true, opText, fits),
			[]string{`{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"1","payload":null}`}},
		"one byte more": {frameOf(true, opText, append(bytes.Clone(fits), ' ')), nil},
		"in parts":      {append(frameOf(false, opText, frame[:500]), frameOf(true, 0, frame[500:])...), nil},
		"never ending":  {frameOf(true, opText, make([]byte, 1<<20))[:9000], nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				p := dial(t, s, newScript(t)).listen()
				if err := p.write(tc.bytes); err != nil {
					t.Fatal(err)
				}
				if tc.want == nil {
					tc.want = []string{`{"type":"connection_error","id":null,"payload":{"message":"Message is larger than 512 bytes","extensions":{"code":"LIMIT_EXCEEDED"}}}`, "CLOSE 1009 message too big"}
				}
				p.expect(tc.want...)
				p.expectSilence()
				time.Sleep(closeWait)
				if strings.HasPrefix(tc.want[1], "CLOSE") && left(s) != 0 {
					t.Error("still connected")
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// A message that the connection's end cuts off is not acted upon.
func TestPartOfAMessageIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		b := frameOf(true, opText, []byte(startA))
		if err := p.write(b[:len(b)-1]); err != nil {
			t.Fatal(err)
		}
		p.conn.Close()
		if left(s) != 0 || len(ss.streams) != 0 {
			t.Errorf("%d connections are left, %d streams were started", left(s), len(ss.streams))
		}
	})
}

// A slowInit lets peers in after longer than a frame may take.
type slowInit struct{ *script }

func (s slowInit) Init(ctx context.Context, payload []byte) (context.Context, error) {
	time.Sleep(testOptions.FrameTimeout + time.Second)
	return s.script.Init(ctx, payload)
}

// The time for a frame is the peer's, not that of the Session.
func TestPeerIsNotCutForTheTimeThatInitTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, slowInit{ss}).listen()
		start := frameOf(true, opText, []byte(startA))
		go func() {
			_ = p.write(append(frameOf(true, opText, []byte(`{"type":"connection_init"}`)), start[:10]...))
			_ = p.write(start[10:])
		}()
		time.Sleep(testOptions.FrameTimeout + 2*time.Second)
		if left(s) != 1 {
			t.Errorf("the peer was cut: %v", ss.why)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

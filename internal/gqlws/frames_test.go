package gqlws

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestIncompleteFrameCutsConnection(t *testing.T) {
	start := frameOf(true, opText, []byte(startA))
	part := frameOf(false, opText, []byte(`{"type":`))
	ping := frameOf(true, opPing, nil)
	for name, begin := range map[string][]byte{
		"one byte":              start[:1],
		"part of a header":      start[:4],
		"part of a payload":     start[:20],
		"a fragment":            part,
		"after a message":       append(bytes.Clone(start), start[:1]...),
		"after a ping":          append(bytes.Clone(ping), start[:3]...),
		"a fragment and a ping": append(bytes.Clone(part), ping...),
		"part of a ping":        ping[:3],
		"two fragments":         append(bytes.Clone(part), frameOf(false, 0, []byte(" "))...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				time.Sleep(20 * time.Second) // FrameTimeout does not apply between frames
				if err := p.write(begin); err != nil {
					t.Fatal(err)
				}
				time.Sleep(testOptions.FrameTimeout - time.Millisecond)
				if remainingSockets(s) != 1 {
					t.Error("the connection was cut before FrameTimeout")
				}
				time.Sleep(time.Millisecond)
				if remainingSockets(s) != 0 || ss.openStreams() != 0 {
					t.Error("the connection is still open after FrameTimeout")
				}
			})
		})
	}
}

func TestIncompleteFrameSentWithHandshakeCutsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dialAs(t, s, newFakeSession(t), "graphql-ws", frameOf(true, opText, []byte(startA))[:10]).startReading()
		time.Sleep(testOptions.FrameTimeout - time.Millisecond)
		p.expectNothing()
		time.Sleep(time.Millisecond)
		p.expect("CUT")
	})
}

func TestFragmentsDoNotExtendFrameTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newFakeSession(t)).startReading()
		begin := time.Now()
		_ = p.write(frameOf(false, opText, []byte(" ")))
		for remainingSockets(s) == 1 && time.Since(begin) < time.Minute {
			_ = p.write(frameOf(false, 0, []byte(" ")))
			_ = p.write(frameOf(true, opPing, nil))
			time.Sleep(time.Second)
		}
		if d := time.Since(begin); d > testOptions.FrameTimeout {
			t.Errorf("the connection was cut after %v, want %v", d, testOptions.FrameTimeout)
		}
	})
}

func TestMessagesSentInSlowPiecesAreProcessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(testOptions)
		p := dial(t, s, newFakeSession(t)).startReading()
		query := frameOf(true, opText, []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`))
		time.Sleep(time.Second) // so that no pong is sent between the pieces
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

func TestTooLargeMessageEndsConnection(t *testing.T) {
	frame := []byte(`{"id":"1","type":"start","payload":{"query":"{info{version}}","x":"` + strings.Repeat("x", 600) +
		`"}}`)
	fits := append(bytes.Clone(frame[:300]), `"}}`...)
	fits = append(fits, bytes.Repeat([]byte(" "), int(testOptions.MaxMessage)-len(fits))...)
	for name, tc := range map[string]struct {
		bytes []byte
		want  []string
	}{
		"exactly MaxMessage": {frameOf(true, opText, fits),
			[]string{`{"type":"data","id":"1","payload":{"data":{"info":{"version":"0.68.0"}}}}`,
				`{"type":"complete","id":"1","payload":null}`}},
		"one byte more": {frameOf(true, opText, append(bytes.Clone(fits), ' ')), nil},
		"in fragments":  {append(frameOf(false, opText, frame[:500]), frameOf(true, 0, frame[500:])...), nil},
		"incomplete":    {frameOf(true, opText, make([]byte, 1<<20))[:9000], nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(testOptions)
				p := dial(t, s, newFakeSession(t)).startReading()
				if err := p.write(tc.bytes); err != nil {
					t.Fatal(err)
				}
				if tc.want == nil {
					tc.want = []string{
						legacyError("Message is larger than 512 bytes", "LIMIT_EXCEEDED"),
						"CLOSE 1009 message too big",
					}
				}
				p.expect(tc.want...)
				p.expectNothing()
				time.Sleep(closeTimeout)
				if strings.HasPrefix(tc.want[1], "CLOSE") && remainingSockets(s) != 0 {
					t.Error("the connection is still open after the close handshake")
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}

// If the peer disconnects inside a message, the part that has arrived is not processed.
func TestMessageCutOffByDisconnectIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		b := frameOf(true, opText, []byte(startA))
		if err := p.write(b[:len(b)-1]); err != nil {
			t.Fatal(err)
		}
		p.conn.Close()
		if remainingSockets(s) != 0 || len(ss.streams) != 0 {
			t.Errorf("%d connections are left and %d streams were started, want none", remainingSockets(s),
				len(ss.streams))
		}
	})
}

// A slowInitSession is a Session. Its Init takes longer than FrameTimeout.
type slowInitSession struct{ *fakeSession }

func (s slowInitSession) Init(ctx context.Context, payload []byte) (context.Context, error) {
	time.Sleep(testOptions.FrameTimeout + time.Second)
	return s.fakeSession.Init(ctx, payload)
}

func TestDurationOfInitDoesNotCountTowardFrameTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, slowInitSession{ss}).startReading()
		start := frameOf(true, opText, []byte(startA))
		go func() {
			_ = p.write(append(frameOf(true, opText, []byte(`{"type":"connection_init"}`)), start[:10]...))
			_ = p.write(start[10:])
		}()
		time.Sleep(testOptions.FrameTimeout + 2*time.Second)
		if remainingSockets(s) != 1 {
			t.Errorf("the connection was cut with %v, want it open", ss.why)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

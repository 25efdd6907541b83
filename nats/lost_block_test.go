package natschain_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// A lossyConn is a connection to a server that drops some of the server's messages.
type lossyConn struct {
	net.Conn
	from *bufio.Reader
	lose func(message []byte) bool // reports whether to drop a message
	rest []byte                    // data that was not dropped but is not read yet
}

func (s *lossyConn) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		line, err := s.from.ReadBytes('\n')
		if err != nil {
			return 0, err
		}
		if words := bytes.Fields(line); len(words) > 0 && bytes.HasSuffix(words[0], []byte("MSG")) {
			size, err := strconv.Atoi(string(words[len(words)-1]))
			if err != nil {
				return 0, err
			}
			body := make([]byte, size+len("\r\n"))
			if _, err := io.ReadFull(s.from, body); err != nil {
				return 0, err
			}
			line = append(line, body...)
		}
		if !s.lose(line) {
			s.rest = line
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

type lossyDialer func(message []byte) bool

func (lose lossyDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &lossyConn{Conn: conn, from: bufio.NewReader(conn), lose: lose}, err
}

// TestFollowYieldsLastBlockThatWasLostInTransit drops the newest block on its way to Follow. No later
// block shows that it is missing, and the consumer continues to send heartbeats.
func TestFollowYieldsLastBlockThatWasLostInTransit(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	all := blocks(5)
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(context.Background(), all...); err != nil {
		t.Fatal(err)
	}
	last := []byte(`"cursor":"` + string(all[4].Cursor) + `"`)
	var lost atomic.Int64
	lose := func(message []byte) bool {
		return bytes.Contains(message, []byte("$JS.ACK.")) && bytes.Contains(message, last) && lost.Add(1) == 1
	}
	b := open(t, s.ClientURL(), &natschain.Options{Connect: []nats.Option{nats.SetCustomDialer(lossyDialer(lose))}})
	follow(t, b, "").expect(all)
	if n := lost.Load(); n < 2 { // more than 2 if a slow consumer was replaced again
		t.Errorf("the server sent the last block %d times, want at least 2", n)
	}
}

// TestFollowYieldsBlockThatWasLostInTransitAmongStrayMessages drops a block between stray messages on its way to
// Follow. No later block shows that it is missing.
func TestFollowYieldsBlockThatWasLostInTransitAmongStrayMessages(t *testing.T) {
	all := numbered(101, 110)
	for _, row := range []struct{ name, stray string }{
		{"undecodable", "junk"},
		{"decodable", string(payloadOf(&all[0]))},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
			publish := func(n int) {
				for range n {
					if _, err := js.Publish(ctx, subjectOf(&all[0]), []byte(row.stray)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := w.Append(ctx, all[:9]...); err != nil {
				t.Fatal(err)
			}
			publish(4)
			if err := w.Append(ctx, all[9]); err != nil {
				t.Fatal(err)
			}
			publish(1)
			last := []byte(`"cursor":"` + string(all[9].Cursor) + `"`)
			var lost atomic.Int64
			opts := (&logbook{}).options()
			opts.Connect = []nats.Option{nats.SetCustomDialer(lossyDialer(func(message []byte) bool {
				return bytes.Contains(message, []byte("$JS.ACK.")) && bytes.Contains(message, last) && lost.Add(1) == 1
			}))}
			r := follow(t, open(t, s.ClientURL(), opts), "")
			r.expect(all)
			if n := lost.Load(); n < 2 {
				t.Errorf("the server sent the last block %d times, want at least 2", n)
			}
		})
	}
}

package natschain_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestFollowContinuesAfterRemovedStrayMessages removes one stray message of a run. Follow must find out that this
// message was not lost in transit, and must not read the others again for each of them.
func TestFollowContinuesAfterRemovedStrayMessages(t *testing.T) {
	const undecodable, decodable = 200, 200
	all := numbered(101, 145)
	for _, removed := range []uint64{41, 42, 41 + undecodable, 43 + undecodable} {
		t.Run(fmt.Sprint("message ", removed), func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			other := open(t, s.ClientURL(), (&logbook{}).options())
			w := writer(t, other)
			if err := w.Append(ctx, all[:40]...); err != nil {
				t.Fatal(err)
			}
			b := open(t, s.ClientURL(), (&logbook{}).options())
			follow(t, b, all[38].Cursor).expect(all[39:40])
			js := raw(t, s.ClientURL())
			for range undecodable {
				if _, err := js.PublishAsync(subjectOf(&all[0]), []byte("junk")); err != nil {
					t.Fatal(err)
				}
			}
			<-js.PublishAsyncComplete()
			publishRun(t, s.ClientURL(), "0999", numbered(5000, 4999+decodable))
			if err := w.Append(ctx, all[40:]...); err != nil {
				t.Fatal(err)
			}
			if err := other.RemoveStray(ctx, removed); err != nil {
				t.Fatal(err)
			}
			before := requests(t, s)
			follow(t, b, all[39].Cursor).expect(all[40:])
			if n := requests(t, s) - before; n > 50 {
				t.Errorf("Follow sent %d requests, want at most 50", n)
			}
		})
	}
}

// requests returns the number of messages that the server has received.
func requests(t *testing.T, s *broker) int64 {
	t.Helper()
	v, err := s.Varz(&server.VarzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.InMsgs
}

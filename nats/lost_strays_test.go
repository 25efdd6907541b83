package natschain_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// TestFollowYieldsBlockThatWasLostInTransitAfterRestore restores a stream from a backup without its newest messages,
// which were strays, and then drops the first new block on its way to Follow. The number of that block is one that the
// host knew as that of a stray.
func TestFollowYieldsBlockThatWasLostInTransitAfterRestore(t *testing.T) {
	t.Parallel()
	const old, strays = 20, 10
	s, ctx, all := newBroker(t), t.Context(), numbered(101, 150)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Append(ctx, all[:old]...); err != nil {
		t.Fatal(err)
	}
	backUp, restore := s.backups()
	backUp()
	js := raw(t, s.ClientURL())
	for range strays {
		if _, err := js.Publish(ctx, subjectOf(&all[0]), []byte("junk")); err != nil {
			t.Fatal(err)
		}
	}
	first := []byte(`"cursor":"` + string(all[old].Cursor) + `"`)
	var lost atomic.Int64
	opts := (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(lossyDialer(func(message []byte) bool {
		return bytes.Contains(message, []byte("$JS.ACK.")) && bytes.Contains(message, first) && lost.Add(1) == 1
	}))}
	b := open(t, s.ClientURL(), opts)
	if _, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1}); err != nil { // Follow then continues without a search
		t.Fatal(err)
	}
	restore()
	if err := writer(t, open(t, s.ClientURL(), (&logbook{}).options())).Append(ctx, all[old:old+5]...); err != nil {
		t.Fatal(err)
	}
	if err := receive(ctx, b, all[old-1].Cursor, all[old:old+5]); err != nil {
		t.Error(err)
	}
	if n := lost.Load(); n < 2 {
		t.Errorf("the server sent the first new block %d times, want at least 2", n)
	}
}

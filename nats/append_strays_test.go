package natschain_test

import (
	"context"
	"testing"
)

// TestAppendPassesStraysAtOnce stores a stray message before each block. If Append needed many requests to find the new
// end of the stream, more strays would arrive meanwhile, and a program that stores some of them per second would delay
// each block.
func TestAppendPassesStraysAtOnce(t *testing.T) {
	t.Parallel()
	s, ctx := newBroker(t), context.Background()
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w, all, js := writer(t, b), numbered(101, 120), raw(t, s.ClientURL())
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	before := requests(t, s)
	for _, block := range all[10:] {
		for _, data := range [][]byte{[]byte("junk"), payloadOf(&all[0])} {
			if _, err := js.Publish(ctx, subjectOf(&all[0]), data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Append(ctx, block); err != nil {
			t.Fatal(err)
		}
	}
	if n := (requests(t, s) - before) / int64(len(all)-10); n > 2+5 {
		t.Errorf("two strays and a block needed %d messages to the server, want at most 7", n)
	}
	follow(t, b, all[9].Cursor).expect(all[10:])
	if n := b.StrayCount(); n != 20 {
		t.Errorf("got %d strays, want 20", n)
	}
}

package natschain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// TestWriterExtendsIndexThatWasUnavailableAtFirst creates a Writer while nobody responds to requests about the
// index stream, for example because it has no leader yet.
func TestWriterExtendsIndexThatWasUnavailableAtFirst(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t), hashed(4_000, "a")
	h := newHolder(t, s, "STREAM.INFO.chain_index")
	h.hold(0, func() { time.Sleep(2 * time.Second) })
	if err := writer(t, h.b).Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	expectByHash(t, h.b, every(500, all), true)
}

// TestBlockOfTheYear10000DoesNotStopTheIndex publishes a block whose time is in the year 10000 in UTC. An index node
// cannot list it.
func TestBlockOfTheYear10000DoesNotStopTheIndex(t *testing.T) {
	t.Parallel()
	s, all, ctx := newBroker(t), hashed(4_000, "a"), t.Context()
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w := writer(t, b)
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	payload := fmt.Sprintf(`{"cursor":"%s0","prev":"%s","seq_no":1,"hash":"%s","time":"9999-12-31T23:59:59-01:00"}`,
		all[9].Cursor, all[9].Cursor, all[9].Hash)
	if _, err := raw(t, s.ClientURL()).Publish(ctx, subjectOf(&all[9]), []byte(payload)); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Fatal(err)
	}
	expectByHash(t, b, every(500, all), true)
	expectPage(t, b, chaingql.BlocksQuery{First: 20}, all[:20])
}

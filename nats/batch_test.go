package natschain_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// TestPagesAreReadAfterLargeStrayMessagesOverSlowConnection publishes large stray messages while a Backend runs. Its
// connection cannot receive 4 MiB of them during one attempt of a request. Pages must be read after some calls.
func TestPagesAreReadAfterLargeStrayMessagesOverSlowConnection(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t), blocks(300)
	w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
	if err := w.Append(t.Context(), all[:200]...); err != nil {
		t.Fatal(err)
	}
	opts := (&logbook{}).options()
	opts.Timeout, opts.Connect = time.Second, []nats.Option{nats.SetCustomDialer(&slowDialer{rate: 10 << 20})}
	b := open(t, s.ClientURL(), opts)
	for range 60 {
		if _, err := js.Publish(t.Context(), subjectOf(&all[0]), bytes.Repeat([]byte("x"), 100_000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(t.Context(), all[200:]...); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; {
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 50})
		if err == nil {
			if want := all[250:]; !slices.Equal(page, want) {
				t.Error(difference(cursorsOf(page), cursorsOf(want)))
			}
			break
		}
		if time.Since(begun) > patience {
			t.Fatalf("Blocks still fails after %v: %v", patience, err)
		}
	}
}

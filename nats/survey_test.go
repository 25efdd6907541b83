package natschain_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// TestSurveyContinuesWhereInterrupted opens a Backend that can read only a part of the newest messages in one call, as
// over a slow connection. The stream grows or is replaced meanwhile. Pages must be read after some calls.
func TestSurveyContinuesWhereInterrupted(t *testing.T) {
	const step, perCall = 20, 2 << 20
	s, all := newBroker(t), uneven(12_000)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	grow := func(blocks []chaingql.Block) {
		t.Helper()
		if err := w.Append(t.Context(), blocks...); err != nil {
			t.Fatal(err)
		}
		// Without this stray message, only the newest 900 messages would be read.
		if _, err := raw(t, s.ClientURL()).Publish(t.Context(), subjectOf(&all[0]), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	stored := 11_000
	grow(all[:stored])
	d, opts := &meteredDialer{}, (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(d)}
	d.left.Store(1 << 40)
	b := open(t, s.ClientURL(), opts)
	read := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		d.left.Store(perCall)
		d.exceeded.Store(&cancel)
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 50})
		if want := all[stored-50 : stored]; err == nil && !slices.Equal(page, want) {
			t.Fatalf("page of %d blocks: %s", stored, difference(cursorsOf(page), cursorsOf(want)))
		}
		return err
	}
	finish := func(meanwhile func()) {
		t.Helper()
		b.Reset()
		for calls := 1; ; calls++ {
			err := read()
			if err == nil && calls > 1 {
				break
			}
			if !errors.Is(err, context.Canceled) && !errors.Is(err, chaingql.ErrChainReplaced) || calls == 20 {
				t.Fatalf("call %d: got error %v", calls, err)
			}
			meanwhile()
		}
	}
	finish(func() {
		grow(all[stored : stored+step])
		stored += step
	})
	finish(sync.OnceFunc(func() {
		all, stored = forked(all), stored+500 // the new stream has a higher number at its end
		replaceStream(t, s.ClientURL(), all[:stored])
		w = writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
		grow(all[stored : stored+step])
		stored += step
	}))
}

// TestSurveyContinuesBehindLargeStrayMessages opens a Backend that can read only a few of the stray messages near the
// end of the stream in one call. While it reads, the stream grows by more of them.
func TestSurveyContinuesBehindLargeStrayMessages(t *testing.T) {
	const perCall = 2 << 20
	s, ctx, all := newBroker(t), t.Context(), blocks(700)
	w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
	grow := func(strays int, blocks []chaingql.Block) {
		t.Helper()
		for i := range strays {
			stray := bytes.Repeat([]byte("x"), 20<<10)
			if i%10 == 0 { // a message that can be decoded interrupts the run
				stray = payloadOf(&numbered(uint64(5000+2*i), uint64(5000+2*i))[0])
			}
			if _, err := js.Publish(ctx, subjectOf(&all[0]), stray); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Append(ctx, blocks...); err != nil {
			t.Fatal(err)
		}
	}
	grow(0, all[:200])
	grow(500, all[200:300])
	d, opts := &meteredDialer{}, (&logbook{}).options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(d)}
	d.left.Store(1 << 40)
	b := open(t, s.ClientURL(), opts)
	b.Reset()
	for calls := 1; ; calls++ {
		ctx, cancel := context.WithCancel(ctx)
		d.left.Store(perCall)
		d.exceeded.Store(&cancel)
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 50})
		cancel()
		if err == nil {
			if want := all[550:600]; calls < 5 || !slices.Equal(page, want) {
				t.Errorf("page after %d calls: %s", calls, difference(cursorsOf(page), cursorsOf(want)))
			}
			break
		}
		if !errors.Is(err, context.Canceled) || calls == 40 {
			t.Fatalf("call %d: got error %v", calls, err)
		}
		if calls == 4 { // more than one call can read
			grow(200, all[300:600])
		}
	}
}

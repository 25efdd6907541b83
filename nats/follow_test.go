package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

// A reading is a Follow call that runs in its own goroutine.
type reading struct {
	t      *testing.T
	blocks chan chaingql.Cursor
	end    chan error
}

func follow(t *testing.T, b *natschain.Backend, after chaingql.Cursor) *reading {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reading{t: t, blocks: make(chan chaingql.Cursor), end: make(chan error, 1)}
	var running sync.WaitGroup
	running.Go(func() {
		for b, err := range b.Follow(ctx, after) {
			if err != nil {
				r.end <- err
				return
			}
			select {
			case r.blocks <- b.Cursor:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r
}

func (r *reading) expect(want []chaingql.Block) {
	r.t.Helper()
	for _, b := range want {
		select {
		case c := <-r.blocks:
			if c != b.Cursor {
				r.t.Fatalf("Follow yielded block %q, want %q", c, b.Cursor)
			}
		case err := <-r.end:
			r.t.Fatalf("Follow ended with error %v, want block %q", err, b.Cursor)
		case <-time.After(patience):
			r.t.Fatalf("Follow yielded no block within %v, want %q", patience, b.Cursor)
		}
	}
}

func (r *reading) ends(within time.Duration) error {
	r.t.Helper()
	select {
	case err := <-r.end:
		return err
	case c := <-r.blocks:
		r.t.Fatalf("Follow yielded block %q, want it to end", c)
	case <-time.After(within):
		r.t.Fatalf("Follow did not end within %v", within)
	}
	return nil
}

// TestServerRestartLosesNoBlocks restarts the server several times during Append and Follow. The server
// keeps its files.
func TestServerRestartLosesNoBlocks(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	w := writer(t, open(t, s.ClientURL(), nil))
	b := open(t, s.ClientURL(), nil)
	all := blocks(900)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var running sync.WaitGroup
	wrote := make(chan int)
	running.Go(func() {
		defer close(wrote)
		for i := range all {
			if err := w.Append(ctx, all[i]); err != nil {
				t.Error(err)
				return
			}
			wrote <- i
		}
	})
	var got []chaingql.Cursor
	failures := 0
	running.Go(func() {
		last := chaingql.Cursor("")
		for len(got) < len(all) && ctx.Err() == nil {
			for b, err := range b.Follow(ctx, last) {
				if err != nil {
					failures++
					break
				}
				got, last = append(got, b.Cursor), b.Cursor
				if len(got) == len(all) {
					break
				}
			}
		}
	})
	const restarts = 3
	for i := range wrote {
		if i%(len(all)/(restarts+1)) == 100 {
			s.stop()
			s.start()
		}
	}
	running.Wait()
	if want := cursorsOf(all); !slices.Equal(got, want) {
		t.Errorf("blocks of all Follow calls: %s", difference(got, want))
	}
	if failures == 0 {
		t.Errorf("Follow never failed during %d restarts, want at least one error", restarts)
	}
	expectStored(t, b, all)
}

// TestFollowReplacesDeletedConsumer repeatedly deletes the consumer of a running Follow. Follow must
// nevertheless yield each block once.
func TestFollowReplacesDeletedConsumer(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(3000), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all[:2000]...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 3000; n += 500 {
		if n >= 2000 {
			if err := w.Append(ctx, all[n:n+500]...); err != nil {
				t.Fatal(err)
			}
		}
		r.expect(all[n : n+500])
		names := stream.ConsumerNames(ctx)
		for name := range names.Name() {
			err := stream.DeleteConsumer(ctx, name)
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // Follow has replaced it already
				t.Fatal(err)
			}
		}
	}
}

// TestFollowYieldsAllBlocksToSlowReader reads so slowly that heartbeats fill the consumer's buffer.
func TestFollowYieldsAllBlocksToSlowReader(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(12_000), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all[:2000]...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	r.expect(all[:10])
	if err := w.Append(ctx, all[2000:]...); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // longer than the timeout of a consumer without heartbeats
	r.expect(all[10:])
}

// TestReadsFailOnDeadConnection stalls the network without closing the connection. Follow, Blocks and
// Balance must return an error and not wait forever.
func TestReadsFailOnDeadConnection(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	all, ctx := blocks(30), context.Background()
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), nil)
	r := follow(t, b, "")
	r.expect(all)
	resume := p.Stall()
	defer resume()
	if err := r.ends(patience); err == nil {
		t.Error("Follow ended without an error")
	}
	page, balance := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
		page <- err
	}()
	go func() {
		_, err := b.Balance(ctx, chaingql.Address{})
		balance <- err
	}()
	for what, asked := range map[string]chan error{"page": page, "balance": balance} {
		select {
		case err := <-asked:
			if err == nil {
				t.Errorf("%s on a dead connection: got no error, want an error", what)
			}
		case <-time.After(patience):
			t.Errorf("%s on a dead connection: got no response within %v, want an error", what, patience)
		}
	}
}

// TestWriterRecoversFromDeadConnection appends over a stalled connection, with a context that has no
// deadline. Append must fail in time, and must succeed when the network works again.
func TestWriterRecoversFromDeadConnection(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), nil)
	w, all, ctx := writer(t, b), blocks(5000), context.Background()
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	resume, inTime := p.Stall(), b.WriteWithin(2*time.Second)
	start := time.Now()
	if err := w.Append(ctx, all...); err == nil || time.Since(start) > patience {
		t.Errorf("Append on a dead connection: got %v after %v, want an error in time", err, time.Since(start))
	}
	if err := w.SetBalance(ctx, chaingql.Address{}, nil); err == nil {
		t.Error("SetBalance to nil: got no error, want an error")
	}
	resume()
	inTime()
	for start := time.Now(); ; {
		err := w.Append(ctx, all...)
		if err == nil {
			break
		}
		if time.Since(start) > patience {
			t.Fatalf("Append still fails %v after the network works again: %v", patience, err)
		}
	}
	expectStored(t, b, all)
}

// TestCloseEndsRunningCalls closes the Backend while calls without a deadline wait for a server that
// does not respond.
func TestCloseEndsRunningCalls(t *testing.T) {
	s := newBroker(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	slow := &natschain.Options{Timeout: time.Hour, WriteTimeout: time.Hour, Create: &natschain.Storage{}}
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), slow)
	w, ctx := writer(t, b), context.Background()
	defer p.Stall()()
	calls := map[string]func() error{
		"Balance":     func() error { _, err := b.Balance(ctx, chaingql.Address{}); return err },
		"Balances":    func() error { _, err := b.Balances(ctx, make([]chaingql.Address, 100)); return err },
		"Blocks":      func() error { _, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 5}); return err },
		"Writer":      func() error { _, err := b.Writer(ctx); return err },
		"Append":      func() error { return w.Append(ctx, blocks(600)...) },
		"SetBalances": func() error { return w.SetBalance(ctx, chaingql.Address{}, big.NewInt(1)) },
		"Prune":       func() error { return w.Prune(ctx, "") },
		"Follow": func() error {
			for _, err := range b.Follow(ctx, "") {
				return err
			}
			return nil
		},
	}
	type end struct {
		name string
		err  error
	}
	ended := make(chan end, len(calls))
	for name, call := range calls {
		go func() { ended <- end{name, call()} }()
	}
	time.Sleep(200 * time.Millisecond) // some calls run by then; calls that start later must end, too
	b.Close()
	late := time.After(patience) // far below the timeout of an hour
	for range len(calls) {
		select {
		case e := <-ended:
			if e.err == nil {
				t.Errorf("%s: got no error after Close, want an error", e.name)
			}
			delete(calls, e.name)
		case <-late:
			for name := range calls {
				t.Errorf("%s did not end within %v after Close", name, patience)
			}
			return
		}
	}
}

func TestFollowAndLaterCallsFailAfterClose(t *testing.T) {
	s := newBroker(t)
	b := open(t, s.ClientURL(), &natschain.Options{Timeout: time.Hour, Create: &natschain.Storage{}})
	r := follow(t, b, "")
	time.Sleep(50 * time.Millisecond) // Follow probably waits for blocks by then, but must end in any case
	b.Close()
	b.Close()
	if err := r.ends(patience); err == nil {
		t.Error("Follow ended without an error")
	}
	start := time.Now()
	if _, err := b.Blocks(context.Background(), chaingql.BlocksQuery{Last: 1}); err == nil ||
		time.Since(start) > patience {
		t.Errorf("Blocks after Close: got error %v after %v, want an error at once", err, time.Since(start))
	}
	if err := follow(t, b, "").ends(patience); err == nil {
		t.Error("Follow after Close: got no error, want an error")
	}
}

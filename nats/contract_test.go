package natschain_test

import (
	"context"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

// contract checks the rules of the Backend contract. All of them use one server, and each has its own chain.
func contract(t *testing.T, storage natschain.Storage, change func(*backendtest.Harness)) {
	s := newBroker(t)
	// While this stream exists, the server does not remove its directory of streams. It would do so after the last
	// stream is deleted, at the same time as the next rule creates one, which then fails.
	kept := jetstream.StreamConfig{Name: "kept"}
	if _, err := raw(t, s.ClientURL()).CreateStream(context.Background(), kept); err != nil {
		t.Fatal(err)
	}
	chains := 0
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		chains++
		opts := natschain.Options{Chain: fmt.Sprint("c", chains), Create: &storage, Timeout: patience}
		h := harness(t, s, &opts)
		change(&h)
		return h
	})
}

// harness returns a harness for the tests of the Backend contract. Its Backend connects to the server
// through a proxy, so that tests can interrupt the connection. Its Writer connects directly.
func harness(t *testing.T, s *broker, opts *natschain.Options) backendtest.Harness {
	ctx := context.Background()
	t.Cleanup(func() { // when the Backends are closed
		js := raw(t, s.ClientURL())
		for _, name := range []string{opts.Chain + "_blocks", opts.Chain + "_index", "KV_" + opts.Chain + "_balances"} {
			if err := js.DeleteStream(ctx, name); err != nil {
				t.Error(err)
			}
		}
	})
	w := writer(t, open(t, s.ClientURL(), opts))
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), opts)
	known := map[chaingql.Address]*big.Int{{Workchain: -1, ID: [32]byte{1}}: big.NewInt(0),
		{ID: [32]byte{31: 2}}: new(big.Int).Lsh(big.NewInt(7), 117)}
	if err := w.SetBalances(ctx, known); err != nil {
		t.Fatal(err)
	}
	js := raw(t, s.ClientURL())
	h := backendtest.Harness{
		Balances:   known,
		Backend:    b,
		Append:     func(blocks []chaingql.Block) error { return w.Append(ctx, blocks...) },
		SetBalance: func(a chaingql.Address, nano *big.Int) error { return w.SetBalance(ctx, a, nano) },
		Prune:      func(before chaingql.Cursor) error { return w.Prune(ctx, before) },
		Replace: func() error {
			if err := js.DeleteStream(ctx, opts.Chain+"_blocks"); err != nil {
				return err
			}
			w = writer(t, open(t, s.ClientURL(), opts))
			return nil
		},
		Interrupt: func() {
			for !b.Connected() { // only an existing connection can be cut
				time.Sleep(5 * time.Millisecond)
			}
			p.Cut()
		},
		Stall: p.Stall,
	}
	if !opts.Create.Memory {
		h.Reopen = func() (chaingql.Backend, error) {
			s.stop() // keeps the server's files
			s.start()
			return open(t, s.ClientURL(), opts), nil
		}
	}
	return h
}

func TestFileStorageFulfillsBackendContract(t *testing.T) {
	t.Parallel()
	contract(t, natschain.Storage{}, func(*backendtest.Harness) {})
}

// The lookups neither depend on the storage nor on the form of the cursors, and take the longest.
func TestMemoryStorageWithSeqCursorsFulfillsBackendContract(t *testing.T) {
	t.Parallel()
	contract(t, natschain.Storage{Memory: true}, func(h *backendtest.Harness) {
		h.Cursor = chaingql.SeqCursor
		b := h.Backend.(*natschain.Backend)
		h.Backend = withoutLookups{b, b, b}
	})
}

// withoutLookups hides the methods of a Backend that find single blocks.
type withoutLookups struct {
	chaingql.Backend
	chaingql.BalanceBatcher
	chaingql.Epocher
}

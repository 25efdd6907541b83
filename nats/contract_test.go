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
)

// harness returns a harness for the tests of the Backend contract. Its Backend connects to the server
// through a proxy, so that tests can interrupt the connection. Its Writer connects directly.
func harness(t *testing.T, storage natschain.Storage) backendtest.Harness {
	s := newBroker(t)
	w := writer(t, open(t, s.ClientURL(), &natschain.Options{Create: &storage}))
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), nil)
	ctx := context.Background()
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
			if err := js.DeleteStream(ctx, "chain_blocks"); err != nil {
				return err
			}
			w = writer(t, open(t, s.ClientURL(), &natschain.Options{Create: &storage}))
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
	if !storage.Memory {
		h.Reopen = func() (chaingql.Backend, error) {
			s.stop() // keeps the server's files
			s.start()
			return open(t, s.ClientURL(), nil), nil
		}
	}
	return h
}

func TestFileStorageFulfillsBackendContract(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness { return harness(t, natschain.Storage{}) })
}

func TestMemoryStorageWithSeqCursorsFulfillsBackendContract(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		h := harness(t, natschain.Storage{Memory: true})
		h.Cursor = chaingql.SeqCursor
		return h
	})
}

package postgres_test

import (
	"context"
	"fmt"
	"math/big"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
)

var schemas atomic.Int64

// newSchema returns the name of a schema that no other test uses.
func newSchema() string { return fmt.Sprintf(`Chain no. %d's "own"`, schemas.Add(1)) }

// open opens a Backend and closes it at the end of the test. If opts does not name a schema, the
// Backend uses a new one.
func open(t testing.TB, dsn string, opts *postgres.Options) *postgres.Backend {
	t.Helper()
	var o postgres.Options
	if opts != nil {
		o = *opts
	}
	if o.Schema == "" {
		o.Schema = newSchema()
	}
	b, err := postgres.Open(context.Background(), dsn, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func writer(t testing.TB, b *postgres.Backend) *postgres.Writer {
	t.Helper()
	w, err := b.Writer(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// harness returns a Backend that connects through a proxy, and a Writer that does not.
func harness(t *testing.T, opts postgres.Options) backendtest.Harness {
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	opts.Schema = newSchema()
	b := open(t, s.tcp(p.Port(), "postgres", "postgres"), &opts)
	w := writer(t, open(t, s.dsn("postgres"), &opts))
	ctx := context.Background()
	known := map[chaingql.Address]*big.Int{
		{Workchain: -1, ID: [32]byte{1}}: big.NewInt(0),
		{ID: [32]byte{31: 2}}:            new(big.Int).Lsh(big.NewInt(7), 117),
	}
	if err := w.SetBalances(ctx, known); err != nil {
		t.Fatal(err)
	}
	return backendtest.Harness{
		Balances:   known,
		Backend:    b,
		Append:     func(blocks []chaingql.Block) error { return w.Append(ctx, blocks...) },
		SetBalance: func(a chaingql.Address, nano *big.Int) error { return w.SetBalance(ctx, a, nano) },
		Prune:      func(before chaingql.Cursor) error { return w.Prune(ctx, before) },
		Reopen:     func() (chaingql.Backend, error) { return open(t, s.dsn("postgres"), &opts), nil },
		Replace: func() error {
			s.admin(t, "DROP SCHEMA "+quote(opts.Schema)+" CASCADE")
			w = writer(t, open(t, s.dsn("postgres"), &opts))
			return nil
		},
		Interrupt: p.Cut,
		Stall:     p.Stall,
	}
}

func TestListeningBackendMeetsContract(t *testing.T) {
	t.Parallel() // it mostly waits
	sharedServer(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		return harness(t, postgres.Options{RecheckInterval: time.Hour})
	})
}

// TestBackendMeetsContractThroughPgBouncer polls with cursors of the other form.
func TestPollingBackendWithSeqCursorsMeetsContract(t *testing.T) {
	t.Parallel() // it mostly waits
	sharedServer(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		h := harness(t, postgres.Options{PollInterval: 5 * time.Millisecond})
		h.Cursor = chaingql.SeqCursor
		h.Interrupt = nil // a polling Follow continues on another connection
		return h
	})
}

package postgres_test

import (
	"context"
	"errors"
	"math/big"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// strict is a part of a DSN. It changes the defaults of connections so that all statements of a transaction read
// the same snapshot and may not write. A Writer must override these defaults.
const strict = " options='-cdefault_transaction_isolation=serializable -cdefault_transaction_read_only=on'"

// Writers with their own connections compete for the next cursors. Follow would skip a block that became visible
// after a block with a later cursor.
func TestFollowYieldsAllBlocksOfConcurrentWriters(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	const writers, each = 8, 40
	var (
		running   sync.WaitGroup
		mu        sync.Mutex
		committed []chaingql.Cursor
	)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for n := range writers {
		w := writer(t, open(t, s.dsn("postgres")+" pool_max_conns=2"+strict, opts))
		running.Go(func() {
			for i := 0; i < each && ctx.Err() == nil; {
				mu.Lock()
				next := uint64(len(committed)*writers + n + 1) // there are gaps, and some blocks are too late
				mu.Unlock()
				block := chaingql.Block{Cursor: chaingql.SeqCursor(next), Workchain: int32(n), SeqNo: uint32(i)}
				switch err := w.Append(ctx, block); {
				case err == nil:
					i++
					mu.Lock()
					committed = append(committed, block.Cursor)
					mu.Unlock()
				case !errors.Is(err, postgres.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	var seen []chaingql.Cursor
	for block, err := range b.Follow(ctx, "") {
		if err != nil {
			t.Error(err)
			break
		}
		if seen = append(seen, block.Cursor); len(seen) == writers*each {
			break
		}
	}
	running.Wait()
	slices.Sort(committed)
	if !slices.Equal(seen, committed) {
		t.Errorf("Follow: %s", difference(seen, committed))
	}
}

func TestConcurrentIndexersCanWriteTheSameBlocks(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	all := backendtest.Chain(600, 3)
	var running sync.WaitGroup
	for n := range 5 {
		w := writer(t, open(t, s.dsn("postgres")+" pool_max_conns=2", opts))
		running.Go(func() {
			for rest := all; len(rest) > 0; {
				batch := min(1+3*n, len(rest))
				addr := chaingql.Address{ID: [32]byte{byte(len(rest) % 3)}}
				other := chaingql.Address{ID: [32]byte{byte(n)}}
				balances := map[chaingql.Address]*big.Int{addr: big.NewInt(1), other: big.NewInt(2)}
				if err := w.Commit(context.Background(), rest[:batch], balances); err != nil {
					t.Error(err)
					return
				}
				rest = rest[batch:]
			}
		})
	}
	running.Wait()
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: chaingql.MaxPage})
	if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all)) {
		t.Errorf("stored blocks: %s; error %v", difference(cursorsOf(page), cursorsOf(all)), err)
	}
}

func TestWaitingWritersLeaveConnectionsForReaders(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema(), Timeout: patience}
	b := open(t, s.dsn("postgres")+" pool_max_conns=2", opts)
	release := hold(t, s, opts.Schema)
	var writing sync.WaitGroup
	w := writer(t, b)
	for range 5 {
		writing.Go(func() {
			if err := w.Append(t.Context(), at("01")...); err != nil {
				t.Error(err)
			}
		})
	}
	sleep(t.Context(), 100*time.Millisecond) // until all Writers wait
	if page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1}); err != nil || len(page) != 0 {
		t.Errorf("Blocks while Writers wait: got %v and error %v, want an empty page", page, err)
	}
	release()
	writing.Wait()
}

func TestAppendFailsAtWriteTimeout(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w := writer(t, b)
	release, inTime := hold(t, s, opts.Schema), b.WriteWithin(500*time.Millisecond)
	var writing sync.WaitGroup
	for range 3 {
		writing.Go(func() {
			if err := w.Append(context.Background(), at("01")...); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Append returned error %v, want DeadlineExceeded", err)
			}
		})
	}
	writing.Wait()
	release()
	inTime()
	if err := w.Append(t.Context(), at("01")...); err != nil {
		t.Error(err)
	}
}

// hold locks the table of blocks against writers until release is called.
func hold(t *testing.T, s *server, schema string) (release func()) {
	t.Helper()
	holder, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	if _, err := holder.Exec(t.Context(), "BEGIN; LOCK TABLE "+quote(schema)+".blocks IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := holder.Exec(t.Context(), "COMMIT"); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentSetBalancesCallsDoNotDeadlock(t *testing.T) {
	b := open(t, sharedServer(t).dsn("postgres")+" pool_max_conns=4", nil)
	w := writer(t, b)
	balances := map[chaingql.Address]*big.Int{}
	for i := range 200 {
		balances[chaingql.Address{ID: [32]byte{byte(i)}}] = big.NewInt(int64(i))
	}
	var writing sync.WaitGroup
	for range 4 {
		writing.Go(func() {
			for range 20 {
				if err := w.SetBalances(context.Background(), balances); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writing.Wait()
}

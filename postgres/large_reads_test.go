package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/chaingqltest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// stall makes many calls while another program locks a table that they read. They wait until release is called, and
// then succeed.
func stall(t *testing.T, s *server, b *postgres.Backend, table string, call func() error) (release func()) {
	t.Helper()
	fillPool(t, b)
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // ends the transaction
	if _, err := conn.Exec(t.Context(), "BEGIN; LOCK TABLE "+table); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 100)
	for range cap(results) {
		go func() { results <- call() }()
	}
	select {
	case err := <-results:
		t.Errorf("a call returned error %v, want it to wait", err)
	case <-time.After(200 * time.Millisecond):
	}
	return func() {
		if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
			t.Error(err)
		}
		for range cap(results) {
			if err := <-results; err != nil {
				t.Errorf("a call that waited returned error %v", err)
			}
		}
	}
}

func TestReadsOfManyBalancesDoNotDelayBlocks(t *testing.T) {
	s, opts := sharedServer(t), &postgres.Options{Schema: newSchema(), Timeout: 30 * time.Second}
	b := open(t, s.dsn("postgres")+" pool_max_conns=4", opts)
	w := writer(t, b)
	stored := at("01", "02", "03")
	if err := w.Append(t.Context(), stored...); err != nil {
		t.Fatal(err)
	}
	release := stall(t, s, b, quote(opts.Schema)+".accounts", func() error {
		_, err := b.Balances(t.Context(), make([]chaingql.Address, 5))
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1}); err != nil || len(page) != 1 {
		t.Errorf("newest block: got %d blocks and error %v", len(page), err)
	}
	if err := w.Append(ctx, at("04")...); err != nil {
		t.Errorf("Append: %v", err)
	}
	next, end := iter.Pull2(b.Follow(ctx, "02"))
	defer end()
	for _, want := range []chaingql.Cursor{"03", "04"} {
		if block, err, _ := next(); err != nil || block.Cursor != want {
			t.Fatalf("Follow: got block %q and error %v, want block %q", block.Cursor, err, want)
		}
	}
	release()
}

func TestReadsOfSingleBalancesDoNotDelayPages(t *testing.T) {
	s, opts := sharedServer(t), &postgres.Options{Schema: newSchema(), Timeout: 30 * time.Second}
	b := open(t, s.dsn("postgres")+" pool_max_conns=4", opts)
	if err := writer(t, b).Append(t.Context(), at("01", "02", "03")...); err != nil {
		t.Fatal(err)
	}
	release := stall(t, s, b, quote(opts.Schema)+".accounts", func() error {
		_, err := b.Balances(t.Context(), make([]chaingql.Address, 1))
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50}); err != nil || len(page) != 3 {
		t.Errorf("got a page of %d blocks and error %v, want 3 blocks", len(page), err)
	}
	release()
}

func TestSubscriptionsResumeDuringReadsOfManyBalances(t *testing.T) {
	s, opts := sharedServer(t), &postgres.Options{Schema: newSchema(), Timeout: 30 * time.Second}
	b := open(t, s.dsn("postgres")+" pool_max_conns=4", opts)
	if err := writer(t, b).Append(t.Context(), at("01", "02", "03")...); err != nil {
		t.Fatal(err)
	}
	release := stall(t, s, b, quote(opts.Schema)+".accounts", func() error {
		_, err := b.Balances(t.Context(), make([]chaingql.Address, 5))
		return err
	})
	handler := chaingqltest.NewHandler(t, b, nil)
	next, end := iter.Pull2(chaingqltest.Subscribe(t, handler, `subscription{blocks(after:"01"){chain_order}}`, nil))
	defer end()
	for range 2 {
		if event, err, ok := next(); err != nil || !ok {
			t.Fatalf("got event %s and error %v, want the blocks after the cursor", event, err)
		}
	}
	release()
}

func TestPagesDoNotDelaySingleBalances(t *testing.T) {
	s, opts := sharedServer(t), &postgres.Options{Schema: newSchema(), Timeout: 30 * time.Second}
	b := open(t, s.dsn("postgres")+" pool_max_conns=4", opts)
	release := stall(t, s, b, quote(opts.Schema)+".blocks", func() error {
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 2})
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Balance(ctx, chaingql.Address{}); err != chaingql.ErrNotFound {
		t.Errorf("Balance: got error %v, want ErrNotFound", err)
	}
	if _, err := b.Balances(ctx, make([]chaingql.Address, 4)); err != nil {
		t.Errorf("Balances of 4 accounts: got error %v", err)
	}
	release()
}

func TestSubscriptionsThatCatchUpDoNotDelaySingleBalances(t *testing.T) {
	s, opts := sharedServer(t), &postgres.Options{Schema: newSchema(), Timeout: 30 * time.Second}
	name := fmt.Sprintf("resumes%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" pool_max_conns=4 application_name="+name, opts)
	blocks := backendtest.Chain(500, 1)
	if err := writer(t, b).Append(t.Context(), blocks...); err != nil {
		t.Fatal(err)
	}
	handler := chaingqltest.NewHandler(t, b, nil)
	subscribe := func(after chaingql.Cursor) error {
		document := fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", after)
		for _, err := range chaingqltest.Subscribe(t, handler, document, nil) {
			return err
		}
		return errors.New("received no block")
	}
	if err := subscribe(blocks[400].Cursor); err != nil { // now Follow has begun
		t.Fatal(err)
	}
	expectListeners(t, s, name, 1) // Follow reads next, and stall waits for all connections
	var next atomic.Int32
	release := stall(t, s, b, quote(opts.Schema)+".blocks", func() error {
		return subscribe(blocks[next.Add(1)].Cursor)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := b.Balance(ctx, chaingql.Address{}); err != chaingql.ErrNotFound {
		t.Errorf("Balance: got error %v, want ErrNotFound", err)
	}
	release()
}

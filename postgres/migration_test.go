package postgres_test

import (
	"context"
	"math/big"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
)

func TestTablesAreMadeOnceHoweverManyOpenAtOnce(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			b, err := postgres.Open(context.Background(), s.dsn("postgres"), &postgres.Options{Schema: schema})
			if err != nil {
				t.Error(err)
				return
			}
			b.Close()
			b.Close()
		})
	}
	opening.Wait()
	w := writer(t, open(t, s.dsn("postgres"), &postgres.Options{Schema: schema}))
	if err := w.Append(t.Context(), backendtest.Chain(10, 1)...); err != nil {
		t.Fatal(err)
	}
	again := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema, SkipMigrations: true})
	if page, err := again.Blocks(t.Context(), chaingql.BlocksQuery{First: 100}); err != nil || len(page) != 10 {
		t.Errorf("opened again, it has %d blocks of 10; %v", len(page), err)
	}
}

func TestTwoChainsInOneDatabaseDoNotMeet(t *testing.T) {
	s := sharedServer(t)
	s.admin(t, "CREATE SCHEMA IF NOT EXISTS shop", "CREATE TABLE IF NOT EXISTS shop.orders (id int)", "DELETE FROM shop.orders", "INSERT INTO shop.orders VALUES (1)")
	one, two := open(t, s.dsn("postgres"), &postgres.Options{Schema: "shop"}), open(t, s.dsn("postgres"), nil)
	blocks := backendtest.Chain(20, 1)
	if err := writer(t, one).Commit(t.Context(), blocks[:10], map[chaingql.Address]*big.Int{{}: big.NewInt(1)}); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, two).Append(t.Context(), blocks[5:]...); err != nil {
		t.Fatal(err)
	}
	for i, b := range []*postgres.Backend{one, two} {
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 100})
		want := [][]chaingql.Block{blocks[:10], blocks[5:]}[i]
		if d := difference(cursorsOf(page), cursorsOf(want)); err != nil || len(page) != len(want) || page[0] != want[0] {
			t.Errorf("chain %d has %s; %v", i+1, d, err)
		}
	}
	if _, err := two.Balance(t.Context(), chaingql.Address{}); err == nil {
		t.Error("an account of one chain is known in the other")
	}
	s.admin(t, "INSERT INTO shop.orders SELECT id FROM shop.orders")
}

package postgres_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

func TestBalancesWrittenBySQLAreReadExactly(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	polls := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema, PollInterval: 1})
	for _, row := range []struct{ numeric, want string }{
		{"0", "0"}, {"0.000", "0"}, {"7.00", "7"}, {"7." + zeros(100), "7"}, {"1e20", "100000000000000000000"},
		{"10000", "10000"}, {"100010000", "100010000"},
		{"18446744073709551617", "18446744073709551617"},
		{"1329227995784915872903807060280344575", "1329227995784915872903807060280344575"},
		{"999999999999999999999999999999999999999999999999999999999999999999999999999999",
			"999999999999999999999999999999999999999999999999999999999999999999999999999999"},
		{"1e77", "1" + zeros(77)},
	} {
		s.admin(t, `INSERT INTO `+quote(schema)+`.accounts VALUES (0, decode(repeat('00', 32), 'hex'), `+row.numeric+`)
			ON CONFLICT (workchain, id) DO UPDATE SET balance = excluded.balance`)
		for _, b := range []*postgres.Backend{b, polls} {
			got, err := b.Balance(t.Context(), chaingql.Address{})
			if err != nil || got.String() != row.want {
				t.Errorf("stored %s: Balance returned %v and error %v, want %s", row.numeric, got, err, row.want)
			}
			together, err := b.Balances(t.Context(), []chaingql.Address{{Workchain: 1}, {}})
			if err != nil || len(together) != 2 || together[0] != nil || together[1].String() != row.want {
				t.Errorf("stored %s: Balances returned %v and error %v, want [<nil> %s]",
					row.numeric, together, err, row.want)
			}
		}
	}
}

// A host reads balances before the accounts are imported. Its connections must not keep the plan for an empty table,
// which reads the whole table.
func TestBalancesReadFewRowsAfterImport(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	name := fmt.Sprintf("counted%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" pool_max_conns=1 application_name="+name, &postgres.Options{Schema: schema})
	w := writer(t, open(t, s.dsn("postgres"), &postgres.Options{Schema: schema}))
	s.admin(t, "ALTER TABLE "+quote(schema)+".accounts SET (autovacuum_enabled = off)")
	account := func(i int) (a chaingql.Address) {
		binary.BigEndian.PutUint32(a.ID[:], uint32(i))
		return a
	}
	for range 10 { // PostgreSQL keeps a plan for all arguments after five calls
		if _, err := b.Balances(t.Context(), make([]chaingql.Address, 10)); err != nil {
			t.Fatal(err)
		}
	}
	imported := map[chaingql.Address]*big.Int{}
	for i := range 3000 {
		imported[account(i)] = big.NewInt(int64(i))
	}
	if err := w.SetBalances(t.Context(), imported); err != nil {
		t.Fatal(err)
	}
	before := rowsRead(t, s, schema, "accounts")
	for i := range 10 {
		if nano, err := b.Balance(t.Context(), account(i)); err != nil || nano.Int64() != int64(i) {
			t.Fatalf("got balance %v and error %v, want %d", nano, err, i)
		}
	}
	b.Close()
	s.admin(t, untilClosed(name))
	if n := rowsRead(t, s, schema, "accounts") - before; n < 10 || n > 40 {
		t.Errorf("PostgreSQL read %d rows for 10 balances, want 10 to 40", n)
	}
}

func TestInvalidBalancesAreRejected(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	w := writer(t, open(t, s.dsn("postgres"), &postgres.Options{Schema: schema}))
	much, _ := new(big.Int).SetString("1"+zeros(78), 10)
	for _, nano := range []*big.Int{nil, big.NewInt(-1), much} {
		if err := w.SetBalance(t.Context(), chaingql.Address{}, nano); err == nil {
			t.Errorf("SetBalance to %v returned no error", nano)
		}
	}
	for _, numeric := range []string{"-1", "0.5", "0." + zeros(99) + "1", "'NaN'", "1e78"} {
		s.admin(t, `DO $$ BEGIN
			INSERT INTO `+quote(schema)+`.accounts VALUES (0, decode(repeat('00', 32), 'hex'), `+numeric+`);
			RAISE 'the table accepted an invalid balance';
		EXCEPTION WHEN check_violation THEN END $$`)
	}
}

func zeros(n int) string { return strings.Repeat("0", n) }

func quote(schema string) string { return pgx.Identifier{schema}.Sanitize() }

// Another program locks the table of blocks, so that the Append waits.
func TestSetBalanceDoesNotWaitForAppend(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w := writer(t, b)
	release := hold(t, s, opts.Schema)
	var appending sync.WaitGroup
	appending.Go(func() {
		if err := w.Append(t.Context(), at("01")...); err != nil {
			t.Error(err)
		}
	})
	sleep(t.Context(), 100*time.Millisecond) // until Append waits for the lock
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.SetBalance(ctx, chaingql.Address{}, big.NewInt(7)); err != nil {
		t.Error(err)
	}
	release()
	appending.Wait()
}

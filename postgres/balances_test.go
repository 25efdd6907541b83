package postgres_test

import (
	"context"
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

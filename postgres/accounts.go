package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// accounts holds balances as parallel slices, one for each column.
type accounts struct {
	workchains []int32
	ids        [][]byte
	balances   []pgtype.Numeric
}

// accountsOf checks balances and sorts them by account, so that all Writers lock the rows
// in the same order and cannot deadlock.
func accountsOf(balances map[chaingql.Address]*big.Int) (a accounts, err error) {
	addrs := slices.SortedFunc(maps.Keys(balances), func(x, y chaingql.Address) int {
		return cmp.Or(cmp.Compare(x.Workchain, y.Workchain), bytes.Compare(x.ID[:], y.ID[:]))
	})
	for i := range addrs {
		v := balances[addrs[i]]
		if v == nil || v.Sign() < 0 || v.Cmp(balanceLimit) >= 0 {
			return a, fmt.Errorf("postgres: balance %v of account %v must be at least 0 and less than 10^%d",
				v, addrs[i], maxDigits)
		}
		a.workchains = append(a.workchains, addrs[i].Workchain)
		a.ids = append(a.ids, addrs[i].ID[:])
		a.balances = append(a.balances, pgtype.Numeric{Int: v, Valid: true})
	}
	return a, nil
}

var balanceLimit = new(big.Int).Exp(big.NewInt(10), big.NewInt(maxDigits), nil)

// source returns a FROM item that yields the balances from array arguments.
func (a accounts) source() source {
	return source{
		from: "unnest($1::int4[], $2::bytea[], $3::numeric[]) n (" + accountColumns + ")",
		args: []any{a.workchains, a.ids, a.balances},
	}
}

// stage copies the balances to a temporary table, which PostgreSQL empties at the end of
// the transaction.
func (a accounts) stage(ctx context.Context, tx pgx.Tx) (source, error) {
	return stage(ctx, tx, "chaingql_accounts", "(workchain int4, id bytea, balance numeric)", accountColumns,
		pgx.CopyFromSlice(len(a.ids), func(i int) ([]any, error) {
			return []any{a.workchains[i], a.ids[i], a.balances[i]}, nil
		}))
}

const accountColumns = "workchain, id, balance"

// setBalances stores the balances that changed yields. They must be in the order of
// accountsOf. If the chain was replaced, setBalances returns errReplaced.
func (w *Writer) setBalances(ctx context.Context, tx pgx.Tx, changed source) error {
	done, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM %s"+
		" WHERE EXISTS (SELECT FROM %s WHERE chain = $%d)"+
		" ON CONFLICT (workchain, id) DO UPDATE SET balance = excluded.balance",
		w.b.tables.accounts, accountColumns, changed.from, w.b.tables.state, len(changed.args)+1),
		append(changed.args, w.chain.id)...)
	if err == nil && done.RowsAffected() == 0 {
		return errReplaced
	}
	return err
}

package postgres

import (
	"context"
	"fmt"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Balance returns the balance of an account in nano-units. If none is stored, Balance
// returns [chaingql.ErrNotFound].
func (b *Backend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	found, err := b.balances(ctx, "read balance", []chaingql.Address{addr})
	switch {
	case err != nil:
		return nil, err
	case found[0] == nil:
		return nil, chaingql.ErrNotFound
	}
	return found[0], nil
}

// Balances returns the balances of several accounts, in the order of addrs. It makes one
// round trip to the server. If no balance is stored for an account, its result is nil. Calls
// for more than 4 accounts are limited like those of [Backend.Blocks].
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	return b.balances(ctx, "read balances", addrs)
}

func (b *Backend) balances(ctx context.Context, what string, addrs []chaingql.Address) ([]*big.Int, error) {
	workchains, ids := make([]int32, len(addrs)), make([][]byte, len(addrs))
	for i := range addrs {
		workchains[i], ids[i] = addrs[i].Workchain, addrs[i].ID[:]
	}
	c := b.chain.Load()
	sql := "SELECT (SELECT true FROM " + b.tables.state + " WHERE chain = $3), a.balance" +
		" FROM unnest($1::int4[], $2::bytea[]) WITH ORDINALITY AS q (workchain, id, place) LEFT JOIN " +
		b.tables.accounts + " a ON a.workchain = q.workchain AND a.id = q.id ORDER BY q.place"
	numerics := make([]pgtype.Numeric, 0, len(addrs))
	read := b.readSmall
	if len(addrs) > fewAccounts {
		read = b.readLarge
	}
	err := read(ctx, what, func(ctx context.Context) error {
		numerics = numerics[:0]
		return b.query(ctx, sql, []any{workchains, ids, c.id}, func(rows pgx.Rows) error {
			var ours pgtype.Bool
			var n pgtype.Numeric
			if err := rows.Scan(&ours, &n); err != nil {
				return err
			}
			if !ours.Valid {
				return errReplaced
			}
			numerics = append(numerics, n)
			return nil
		})
	})
	if err != nil {
		return nil, b.noticed(ctx, c, err)
	}
	found := make([]*big.Int, len(numerics))
	for i, n := range numerics {
		if !n.Valid {
			continue
		}
		if found[i], err = nano(n); err != nil {
			return nil, err
		}
	}
	return found, nil
}

const (
	maxDigits   = 78    // maximum number of digits of a balance, which the table's constraint enforces
	maxDecimals = 16383 // maximum number of decimal places of a numeric; in a balance they are all zero
)

// nano converts a stored balance to an integer number of nano-units. PostgreSQL sends it
// as digits and an exponent.
func nano(n pgtype.Numeric) (*big.Int, error) {
	if !n.Valid || n.NaN || n.InfinityModifier != pgtype.Finite || n.Int == nil || n.Int.Sign() < 0 ||
		n.Exp > maxDigits || n.Exp < -maxDecimals {
		return nil, fmt.Errorf("postgres: stored balance %+v is not a valid number of nano-units", n)
	}
	if n.Exp == 0 {
		return n.Int, nil
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n.Exp, -n.Exp))), nil)
	if n.Exp > 0 {
		return scale.Mul(scale, n.Int), nil
	}
	whole, rest := new(big.Int).QuoRem(n.Int, scale, new(big.Int))
	if rest.Sign() != 0 {
		return nil, fmt.Errorf("postgres: stored balance %+v contains a fraction of a nano-unit", n)
	}
	return whole, nil
}

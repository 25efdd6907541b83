package postgres

import (
	"context"
	"fmt"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5/pgtype"
)

// Balance returns an account's balance, or [chaingql.ErrNotFound] where no
// Writer ever named the account.
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

// Balances returns the balances of accounts in one round trip, nil for those
// that no Writer ever named.
func (b *Backend) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	return b.balances(ctx, "read balances", addrs)
}

func (b *Backend) balances(ctx context.Context, what string, addrs []chaingql.Address) ([]*big.Int, error) {
	workchains, ids := make([]int32, len(addrs)), make([][]byte, len(addrs))
	for i := range addrs {
		workchains[i], ids[i] = addrs[i].Workchain, addrs[i].ID[:]
	}
	numerics := make([]pgtype.Numeric, 0, len(addrs))
	err := b.read(ctx, what, func(ctx context.Context) error {
		numerics = numerics[:0]
		rows, err := b.pool.Query(ctx, "SELECT (SELECT true FROM "+b.tables.state+" WHERE chain = $3), a.balance"+
			" FROM unnest($1::int4[], $2::bytea[]) WITH ORDINALITY AS q (workchain, id, place) LEFT JOIN "+
			b.tables.accounts+" a ON a.workchain = q.workchain AND a.id = q.id ORDER BY q.place",
			workchains, ids, b.chain)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var ours pgtype.Bool
			var n pgtype.Numeric
			if err := rows.Scan(&ours, &n); err != nil {
				return err
			}
			if !ours.Valid {
				return errReplaced
			}
			numerics = append(numerics, n)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
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
	mostDigits = 78    // that the table lets a balance have
	mostPlaces = 16383 // behind the point that a numeric has, all zeros here
)

// nano makes a whole number of a numeric, which PostgreSQL writes as digits and
// an exponent.
func nano(n pgtype.Numeric) (*big.Int, error) {
	if !n.Valid || n.NaN || n.InfinityModifier != pgtype.Finite || n.Int == nil || n.Int.Sign() < 0 || n.Exp > mostDigits || n.Exp < -mostPlaces {
		return nil, fmt.Errorf("postgres: balance %+v is no number of nano-units", n)
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
		return nil, fmt.Errorf("postgres: balance %+v has a part of a nano-unit", n)
	}
	return whole, nil
}

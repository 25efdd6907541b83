package postgres

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5/pgtype"
)

// accounts are balances as columns.
type accounts struct {
	workchains []int32
	ids        [][]byte
	balances   []pgtype.Numeric
}

// accountsOf checks balances and puts them in one order for all: two Writers
// that lock the same rows in different orders would wait for each other.
func accountsOf(balances map[chaingql.Address]*big.Int) (a accounts, err error) {
	addrs := slices.SortedFunc(maps.Keys(balances), func(x, y chaingql.Address) int {
		return cmp.Or(cmp.Compare(x.Workchain, y.Workchain), bytes.Compare(x.ID[:], y.ID[:]))
	})
	for i := range addrs {
		v := balances[addrs[i]]
		if v == nil || v.Sign() < 0 || v.Cmp(tooMuch) >= 0 {
			return a, fmt.Errorf("postgres: balance %v of %v is not from 0 to below 10^%d", v, addrs[i], mostDigits)
		}
		a.workchains = append(a.workchains, addrs[i].Workchain)
		a.ids = append(a.ids, addrs[i].ID[:])
		a.balances = append(a.balances, pgtype.Numeric{Int: v, Valid: true})
	}
	return a, nil
}

var tooMuch = new(big.Int).Exp(big.NewInt(10), big.NewInt(mostDigits), nil)

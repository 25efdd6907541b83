package chaingql

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/chaingql/chaingql/internal/plan"
)

// amount looks an account's balance up, together with all others that the
// request asks for where the Backend can do that.
func (r *resolvers) amount(ctx context.Context, a *account) (*big.Int, error) {
	if r.batcher != nil && a.call != nil {
		if a.call.balances == nil {
			a.call.balances, a.call.err = r.balances(ctx, a.call.op)
		}
		if amount, ok := a.call.balances[a.address]; ok || a.call.err != nil {
			return amount, a.call.err
		}
	}
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	amount, err := r.backend.Balance(ctx, a.address)
	switch {
	case errors.Is(err, ErrNotFound):
		return new(big.Int), nil
	case err != nil:
		return nil, r.explain(ctx, err)
	case amount == nil:
		return nil, errors.New("chaingql: Backend.Balance returned neither a balance nor an error")
	}
	return amount, nil
}

// balances looks up all balances that an operation asks for, unless it is one.
func (r *resolvers) balances(ctx context.Context, op *plan.Bound) (map[Address]*big.Int, error) {
	found := map[Address]*big.Int{}
	var addrs []Address
	for args := range op.Batch() {
		addr, err := ParseAddress(args[0].(string))
		if _, twice := found[addr]; err == nil && !twice {
			found[addr] = nil
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) < 2 {
		return map[Address]*big.Int{}, nil
	}
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	amounts, err := r.batcher.Balances(ctx, addrs)
	switch {
	case err != nil:
		return found, r.explain(ctx, err)
	case len(amounts) != len(addrs):
		return found, fmt.Errorf("chaingql: Backend.Balances returned %d balances for %d addresses", len(amounts), len(addrs))
	}
	for i, amount := range amounts {
		if amount == nil {
			amount = new(big.Int)
		}
		found[addrs[i]] = amount
	}
	return found, nil
}

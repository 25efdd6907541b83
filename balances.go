package chaingql

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"

	"github.com/chaingql/chaingql/internal/plan"
)

// amount returns the balance of an account. If the Backend is a BalanceBatcher, amount reads the balances of all
// accounts in the request with one call.
func (r *resolvers) amount(ctx context.Context, a *account) (*big.Int, error) {
	if a.call.op == nil || !a.call.op.Batches() { // there is no op if graphql-go executes the query
		return r.readBalance(ctx, a.call, a.address)
	}
	if a.call.balances == nil {
		a.call.balances, a.call.err = map[Address]balance{}, errPanicked // remains set if the Backend panics
		a.call.err = r.readBatch(ctx, a.call)
	}
	known, asked := a.call.balances[a.address]
	switch {
	case a.call.err != nil:
		return nil, a.call.err
	case asked:
		return known.amount, known.err
	}
	a.call.balances[a.address] = balance{err: errPanicked} // remains set if the Backend panics
	amount, err := r.readBalance(ctx, a.call, a.address)
	a.call.balances[a.address] = balance{amount, err}
	return amount, err
}

var errPanicked = errors.New("chaingql: the Backend panicked")

// readBalance reads the balance of one account from the Backend. It does not check the response itself, because the
// compiler inlines the deferred calls of a function only if it has few of them and few returns.
func (r *resolvers) readBalance(ctx context.Context, c *call, addr Address) (amount *big.Int, err error) {
	if err := r.wait(ctx, c); err != nil {
		return nil, err
	}
	defer r.waited(c, &err)
	slot := r.slot(c, nil)
	if err := slot.Acquire(ctx); err != nil {
		return nil, err
	}
	defer slot.Release()
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	return r.callBalance(ctx, addr)
}

func (r *resolvers) callBalance(ctx context.Context, addr Address) (*big.Int, error) {
	amount, err := r.backend.Balance(ctx, addr)
	if err == nil || errors.Is(err, ErrNotFound) {
		r.chains.newest.Load().blocks.Retry() // the Backend works again, so Follow may work too
	}
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

// readBatch reads all balances of a request with one Backend call. It does nothing if the request has fewer than two
// addresses or the Backend is not a BalanceBatcher.
func (r *resolvers) readBatch(ctx context.Context, c *call) (err error) {
	if r.batcher == nil {
		return nil
	}
	var addrs []Address
	for args := range c.op.Batch() {
		addr, err := addressOf(args[0])
		if err == nil && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) < 2 {
		return nil
	}
	if err := r.wait(ctx, c); err != nil {
		return err
	}
	defer r.waited(c, &err)
	slot := r.slot(c, r.slots.batches)
	if err := slot.Acquire(ctx); err != nil {
		return err
	}
	defer slot.Release()
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	amounts, err := r.batcher.Balances(ctx, addrs)
	switch {
	case err != nil:
		return r.explain(ctx, err)
	case len(amounts) != len(addrs):
		return fmt.Errorf("chaingql: Backend.Balances returned %d balances for %d addresses", len(amounts), len(addrs))
	}
	r.chains.newest.Load().blocks.Retry()
	for i, amount := range amounts {
		if amount == nil {
			amount = new(big.Int)
		}
		c.balances[addrs[i]] = balance{amount: amount}
	}
	return nil
}

// decimal and hexadecimal format a balance as a JSON string. Nearly all balances fit in 64 bits, which strconv formats
// faster than big.Int.
type (
	decimal     struct{ *big.Int }
	hexadecimal struct{ *big.Int }
)

// AppendLeaf appends the number as a JSON string of decimal digits.
func (d decimal) AppendLeaf(dst []byte) []byte {
	dst = append(dst, '"')
	if d.IsUint64() {
		return append(plan.AppendUint(dst, d.Uint64()), '"')
	}
	return append(d.Append(dst, 10), '"')
}

// AppendLeaf appends the number as a JSON string of hexadecimal digits after 0x.
func (h hexadecimal) AppendLeaf(dst []byte) []byte {
	dst = append(dst, `"0x`...)
	if h.IsUint64() {
		return append(strconv.AppendUint(dst, h.Uint64(), 16), '"')
	}
	return append(h.Append(dst, 16), '"')
}

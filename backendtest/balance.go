package backendtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/big"
	"sync"

	"github.com/chaingql/chaingql"
)

// balances returns balances at and just above the limits of common number types.
func balances() []*big.Int {
	pow := func(n uint, plus int64) *big.Int {
		v := new(big.Int).Lsh(big.NewInt(1), n)
		return v.Add(v, big.NewInt(plus))
	}
	return []*big.Int{
		big.NewInt(0), big.NewInt(1),
		pow(53, 1),   // a float64 cannot represent it exactly
		pow(63, 0),   // overflows int64
		pow(64, -1),  // the maximum of uint64
		pow(64, 0),   // overflows uint64
		pow(120, -1), // the maximum balance of an account
	}
}

// account returns an address derived from name.
func account(workchain int32, name string) chaingql.Address {
	return chaingql.Address{Workchain: workchain, ID: sha256.Sum256([]byte("backendtest: " + name))}
}

// setBalance sets a balance in the source.
func (t *trial) setBalance(addr chaingql.Address, nano *big.Int) {
	if err := t.SetBalance(addr, nano); err != nil {
		t.Fatalf("Harness.SetBalance(%v, %v) failed: %v", addr, nano, err)
	}
}

// expectBalance checks that Balance returns want. why states the rule in messages.
func (t *trial) expectBalance(addr chaingql.Address, want *big.Int, why string) {
	if got := t.balance(addr); got.Cmp(want) != 0 {
		t.Fatalf("Balance(%v) returned %v, want %v: %s", addr, got, want, why)
	}
}

// overwrite changes the value and the memory of v, which the owner of v may do.
func overwrite(v *big.Int) {
	digits := v.Bits()
	for i := range digits {
		digits[i] = ^digits[i]
	}
	v.SetInt64(-1)
}

func balanceIsExact(t *trial) {
	for i, nano := range balances() {
		t.expectNotFound(account(0, fmt.Sprint(i))) // a Backend must not remember that
		t.setBalance(account(0, fmt.Sprint(i)), nano)
	}
	for i, nano := range balances() {
		t.expectBalance(account(0, fmt.Sprint(i)), nano, "balances up to 2^120-1 must be exact to the nano-unit")
	}
	addr := account(0, "0")
	t.setBalance(addr, big.NewInt(7))
	t.expectBalance(addr, big.NewInt(7), "Balance must return the balance that was set last")
	addr.ID[len(addr.ID)-1] ^= 1
	t.expectNotFound(addr) // only the last bit differs
}

func callerOwnsBalance(t *trial) {
	for i, nano := range balances() {
		addr := account(0, fmt.Sprint(i))
		given := new(big.Int).Set(nano)
		t.setBalance(addr, given)
		overwrite(given)
		t.expectBalance(addr, nano, "the test modified the value after it passed it to SetBalance, which must copy it")
		overwrite(t.balance(addr))
		t.expectBalance(addr, nano, callerModifiedBalance)
	}
}

const callerModifiedBalance = "the test modified the value that an earlier call of Balance returned: " +
	"Balance must return a copy"

func workchainsAreSeparate(t *trial) {
	workchains := []int32{0, -1, 1, math.MinInt32, math.MaxInt32}
	for i, workchain := range workchains {
		t.setBalance(account(workchain, "one"), big.NewInt(int64(100+i)))
	}
	for i, workchain := range workchains {
		t.expectBalance(account(workchain, "one"), big.NewInt(int64(100+i)),
			"accounts with the same ID in different workchains must have separate balances")
	}
}

func recordedBalanceIsExact(t *trial) {
	for addr, nano := range t.Balances {
		t.expectBalance(addr, nano, "a balance must be exact to the nano-unit")
		overwrite(t.balance(addr))
		t.expectBalance(addr, nano, callerModifiedBalance)
	}
}

func unknownAccountIsNotFound(t *trial) {
	for _, workchain := range []int32{0, -1} {
		t.expectNotFound(account(workchain, "nobody"))
	}
}

func (t *trial) expectNotFound(addr chaingql.Address) {
	what := fmt.Sprintf("Balance(%v) of an account that has never been on the chain", addr)
	nano, err := result(t, what, mayDoEither, func() (*big.Int, error) { return t.Backend.Balance(t.ctx, addr) })
	if !errors.Is(err, chaingql.ErrNotFound) {
		t.Fatalf("%s returned %v and error %v: the error must be ErrNotFound", what, nano, err)
	}
}

// batchIsExact checks Balances if the Backend is also a BalanceBatcher.
func batchIsExact(t *trial) {
	b, ok := t.Backend.(chaingql.BalanceBatcher)
	if !ok {
		return
	}
	addrs, want := []chaingql.Address{account(0, "nobody")}, []*big.Int{nil}
	for i, nano := range balances() {
		addr := account(int32(i%2-1), fmt.Sprint(i))
		t.setBalance(addr, nano)
		addrs, want = append(addrs, addr), append(want, nano)
	}
	addrs, want = append(addrs, account(-1, "nobody")), append(want, nil)
	for range 2 { // twice, because expectBalances modifies the result, which must not affect the next call
		t.expectBalances(b, addrs, want)
	}
	for _, i := range []int{1, len(addrs) - 1} { // a Backend must not remember a balance, or that it was unknown
		want[i] = big.NewInt(8)
		t.setBalance(addrs[i], want[i])
	}
	t.expectBalances(b, addrs, want)
}

// manyAddresses is the number of addresses that one call of Balances must accept.
const manyAddresses = 100

// batchOf100IsAccepted calls Balances with 100 addresses if the Backend is also a BalanceBatcher.
func batchOf100IsAccepted(t *trial) {
	if b, ok := t.Backend.(chaingql.BalanceBatcher); ok {
		addrs, want := t.manyAccounts()
		t.expectBalances(b, addrs, want)
	}
}

// manyAccounts returns manyAddresses addresses and their balances. Up to half of them are known accounts, first and
// then every second one. The balance of an unknown account is nil.
func (t *trial) manyAccounts() (addrs []chaingql.Address, want []*big.Int) {
	known := t.Balances
	if t.SetBalance != nil {
		known = make(map[chaingql.Address]*big.Int)
		for i := range manyAddresses / 2 {
			addr, nano := account(int32(-(i%2)), fmt.Sprint("of many ", i)), big.NewInt(int64(1000+i))
			t.setBalance(addr, nano)
			known[addr] = nano
		}
	}
	for addr, nano := range known {
		if len(addrs) > manyAddresses-2 {
			break
		}
		nobody := account(addr.Workchain, fmt.Sprint("nobody ", len(addrs)))
		addrs, want = append(addrs, addr, nobody), append(want, nano, nil)
	}
	for len(addrs) < manyAddresses {
		addrs, want = append(addrs, account(0, fmt.Sprint("nobody ", len(addrs)))), append(want, nil)
	}
	return addrs, want
}

// expectBalances checks that Balances returns want, and then modifies the result.
func (t *trial) expectBalances(b chaingql.BalanceBatcher, addrs []chaingql.Address, want []*big.Int) {
	what := fmt.Sprintf("Balances of %d addresses", len(addrs))
	got, _ := result(t, what, mustSucceed, func() ([]*big.Int, error) { return b.Balances(t.ctx, addrs) })
	if fault := balancesFault(addrs, want, got); fault != "" {
		t.Fatalf("Balances %s", fault)
	}
	for _, nano := range got {
		if nano != nil {
			overwrite(nano)
		}
	}
}

// balancesFault describes how got, a result of Balances, differs from want, or returns "". The description continues a
// sentence about the call.
func balancesFault(addrs []chaingql.Address, want, got []*big.Int) string {
	if len(got) != len(want) {
		return fmt.Sprintf("returned %d values for %d addresses: it must return one per address", len(got), len(want))
	}
	for i, nano := range got {
		switch {
		case want[i] == nil && nano != nil:
			return fmt.Sprintf("returned %v for %v: it must return nil for an account that has never been on the chain",
				nano, addrs[i])
		case want[i] != nil && (nano == nil || nano.Cmp(want[i]) != 0):
			return fmt.Sprintf("returned %v for %v at index %d, want %v: it must return new values, "+
				"in the order of the addresses", nano, addrs[i], i, want[i])
		}
	}
	return ""
}

func balancesSurviveRestart(t *trial) {
	t.fill(minBlocks, 0)
	for i, nano := range balances() {
		t.setBalance(account(int32(i%2-1), fmt.Sprint(i)), nano)
	}
	t.reopen()
	for i, nano := range balances() {
		t.expectBalance(account(int32(i%2-1), fmt.Sprint(i)), nano, "a balance must survive a restart")
	}
	changed := account(-1, "0")
	t.setBalance(changed, big.NewInt(7))
	t.expectBalance(changed, big.NewInt(7), "a balance may change after a restart")
}

func (t *trial) balanceDuringWrites(addr chaingql.Address) (*big.Int, error) {
	what := fmt.Sprintf("Balance(%v), while balances were set,", addr)
	return result(t, what, mayDoEither, func() (*big.Int, error) { return t.Backend.Balance(t.ctx, addr) })
}

// balanceIsCorrectDuringWrites sets and reads balances concurrently, mainly for the race
// detector. Each account has one writer, and Balance must return what that writer set last.
func balanceIsCorrectDuringWrites(t *trial) {
	const writers, rounds = 4, 50
	addr := func(writer int) chaingql.Address {
		return account(int32(-(writer % 2)), fmt.Sprint("written ", writer))
	}
	for i := range writers {
		t.setBalance(addr(i), new(big.Int))
	}
	var running sync.WaitGroup
	together, isBatcher := t.Backend.(chaingql.BalanceBatcher)
	for i := range writers {
		running.Go(func() {
			for n := int64(1); n <= rounds; n++ {
				if err := t.SetBalance(addr(i), big.NewInt(n)); err != nil {
					t.Errorf("Harness.SetBalance failed: %v", err)
					return
				}
				got, err := t.balanceDuringWrites(addr(i))
				if err != nil || got == nil || got.Int64() != n {
					t.Errorf("Balance(%v), while other balances were set, returned %v and error %v, want %d",
						addr(i), got, err, n)
					return
				}
			}
		})
		running.Go(func() {
			other, newest := addr((i+1)%writers), int64(0)
			for range rounds {
				if isBatcher {
					_, err := result(t, "Balances, while balances were set,", mayDoEither, func() ([]*big.Int, error) {
						return together.Balances(t.ctx, []chaingql.Address{other, addr(i)})
					})
					if err != nil {
						t.Errorf("Balances failed while balances were set: %v", err)
						return
					}
				}
				got, err := t.balanceDuringWrites(other)
				if err != nil || got == nil || got.Int64() < newest {
					t.Errorf("Balance(%v), while this balance was set, returned %v and error %v, want at least %d",
						other, got, err, newest)
					return
				}
				newest = got.Int64()
			}
		})
	}
	running.Wait()
	for i := range writers {
		t.expectBalance(addr(i), big.NewInt(rounds),
			"Balance must return the balance that was set last, even if other balances are set at the same time")
	}
}

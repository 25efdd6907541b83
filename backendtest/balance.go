package backendtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"sync"

	"github.com/chaingql/chaingql"
)

// balances holds values at the limits of number types.
func balances() []*big.Int {
	pow := func(n uint, plus int64) *big.Int {
		v := new(big.Int).Lsh(big.NewInt(1), n)
		return v.Add(v, big.NewInt(plus))
	}
	return []*big.Int{
		big.NewInt(0), big.NewInt(1),
		pow(53, 1),  // past float64
		pow(63, 0),  // past int64
		pow(64, -1), // the end of uint64
		pow(64, 0),
		pow(120, -1), // the largest balance of an account
	}
}

// account returns an address derived from name.
func account(workchain int32, name string) chaingql.Address {
	return chaingql.Address{Workchain: workchain, ID: sha256.Sum256([]byte("backendtest: " + name))}
}

func (t *trial) setBalance(addr chaingql.Address, nano *big.Int) {
	t.Helper()
	if err := t.SetBalance(addr, nano); err != nil {
		t.Fatalf("Harness.SetBalance(%v, %v): %v", addr, nano, err)
	}
}

func (t *trial) expectBalance(addr chaingql.Address, want *big.Int, why string) {
	t.Helper()
	if got := t.balance(addr); got.Cmp(want) != 0 {
		t.Fatalf("Balance(%v) is %v, want %v: %s", addr, got, want, why)
	}
}

// spoil modifies a balance, as a caller that owns it may.
func spoil(v *big.Int) {
	digits := v.Bits()
	for i := range digits {
		digits[i] = ^digits[i]
	}
	v.SetInt64(-1)
}

func balancesComeBackExactly(t *trial) {
	for i, nano := range balances() {
		t.expectNotFound(account(0, fmt.Sprint(i))) // a Backend must not remember that
		t.setBalance(account(0, fmt.Sprint(i)), nano)
	}
	for i, nano := range balances() {
		t.expectBalance(account(0, fmt.Sprint(i)), nano, "a balance must come back to the last nano-unit, up to 2^120-1")
	}
	addr := account(0, "0")
	t.setBalance(addr, big.NewInt(7))
	t.expectBalance(addr, big.NewInt(7), "the newest balance counts")
}

func balanceIsTheCallersOwn(t *trial) {
	for i, nano := range balances() {
		addr := account(0, fmt.Sprint(i))
		given := new(big.Int).Set(nano)
		t.setBalance(addr, given)
		spoil(given)
		t.expectBalance(addr, nano, "the value that SetBalance was given was changed afterwards, and the source must have kept a copy")
		spoil(t.balance(addr))
		t.expectBalance(addr, nano, "the value that Balance returned before was changed, and it must be the caller's own")
	}
}

func workchainsAreToldApart(t *trial) {
	workchains := []int32{0, -1, 1, math.MinInt32, math.MaxInt32}
	for i, workchain := range workchains {
		t.setBalance(account(workchain, "one"), big.NewInt(int64(100+i)))
	}
	for i, workchain := range workchains {
		t.expectBalance(account(workchain, "one"), big.NewInt(int64(100+i)), "accounts of the same ID live in every workchain, negative ones too")
	}
}

func recordedBalancesComeBack(t *trial) {
	for addr, nano := range t.Balances {
		t.expectBalance(addr, nano, "a balance must come back to the last nano-unit")
		spoil(t.balance(addr))
		t.expectBalance(addr, nano, "the value that Balance returned before was changed, and it must be the caller's own")
	}
}

func unknownAccountIsNotFound(t *trial) {
	for _, workchain := range []int32{0, -1} {
		t.expectNotFound(account(workchain, "nobody"))
	}
}

func (t *trial) expectNotFound(addr chaingql.Address) {
	t.Helper()
	what := fmt.Sprintf("Balance(%v) of an account that the chain never saw", addr)
	nano := new(big.Int)
	err := t.promptly(t.Patience, what, func() (err error) {
		nano, err = t.Backend.Balance(t.ctx, addr)
		return err
	}, mayDoEither)
	if !errors.Is(err, chaingql.ErrNotFound) {
		t.Fatalf("%s returned %v and error %v: the error must be ErrNotFound", what, nano, err)
	}
}

// balancesTogether checks a Backend that is also a BalanceBatcher.
func balancesTogether(t *trial) {
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
	for range 2 { // the second time after the first result was modified
		t.expectBalances(b, addrs, want)
	}
	last := len(addrs) - 1 // a Backend must not remember that it was unknown
	want[last] = big.NewInt(8)
	t.setBalance(addrs[last], want[last])
	t.expectBalances(b, addrs, want)
}

// manyAddresses is the number of addresses in one call of Balances.
const manyAddresses = 100

// manyBalancesTogether asks a BalanceBatcher for known accounts, if there are any,
// among unknown ones.
func manyBalancesTogether(t *trial) {
	b, ok := t.Backend.(chaingql.BalanceBatcher)
	if !ok {
		return
	}
	known := maps.Clone(t.Balances)
	if t.SetBalance != nil {
		known = make(map[chaingql.Address]*big.Int)
		for i := range manyAddresses / 2 {
			addr, nano := account(int32(-(i%2)), fmt.Sprint("of many ", i)), big.NewInt(int64(1000+i))
			t.setBalance(addr, nano)
			known[addr] = nano
		}
	}
	var addrs []chaingql.Address
	var want []*big.Int
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
	t.expectBalances(b, addrs, want)
}

func (t *trial) expectBalances(b chaingql.BalanceBatcher, addrs []chaingql.Address, want []*big.Int) {
	t.Helper()
	var got []*big.Int
	t.promptly(t.Patience, fmt.Sprintf("Balances of %d addresses", len(addrs)), func() (err error) {
		got, err = b.Balances(t.ctx, addrs)
		return err
	}, mustSucceed)
	if len(got) != len(want) {
		t.Fatalf("Balances returned %d balances for %d addresses", len(got), len(want))
	}
	for i, nano := range got {
		switch {
		case want[i] == nil && nano != nil:
			t.Fatalf("Balances has %v for %v, which the chain never saw: it must be nil", nano, addrs[i])
		case want[i] != nil && (nano == nil || nano.Cmp(want[i]) != 0):
			t.Fatalf("Balances has %v for %v at place %d instead of %v: they must be in the order of the addresses", nano, addrs[i], i, want[i])
		case nano != nil:
			spoil(nano)
		}
	}
}

func balancesAreRememberedAfterRestart(t *trial) {
	t.fill(fewest, 0)
	for i, nano := range balances() {
		t.setBalance(account(int32(i%2-1), fmt.Sprint(i)), nano)
	}
	t.reopen()
	for i, nano := range balances() {
		t.expectBalance(account(int32(i%2-1), fmt.Sprint(i)), nano, "a balance that was set must be remembered after a restart")
	}
}

// balancesHoldWhileWritten sets and reads balances at the same time, for the race
// detector above all. Each account has one writer, whose newest balance counts.
func balancesHoldWhileWritten(t *trial) {
	const writers, rounds = 4, 50
	addr := func(writer int) chaingql.Address {
		return account(int32(-(writer % 2)), fmt.Sprint("written ", writer))
	}
	for i := range writers {
		t.setBalance(addr(i), new(big.Int))
	}
	var running sync.WaitGroup
	faults := make(chan string, 2*writers)
	together, isBatcher := t.Backend.(chaingql.BalanceBatcher)
	for i := range writers {
		running.Go(func() {
			for n := int64(1); n <= rounds; n++ {
				if err := t.SetBalance(addr(i), big.NewInt(n)); err != nil {
					faults <- fmt.Sprintf("Harness.SetBalance: %v", err)
					return
				}
				got, err := t.Backend.Balance(t.ctx, addr(i))
				if err != nil || got == nil || got.Int64() != n {
					faults <- fmt.Sprintf("Balance(%v), while others were written, is %v with error %v, want %d", addr(i), got, err, n)
					return
				}
			}
		})
		running.Go(func() {
			other, newest := addr((i+1)%writers), int64(0)
			for range rounds {
				if isBatcher {
					if _, err := together.Balances(t.ctx, []chaingql.Address{other, addr(i)}); err != nil {
						faults <- fmt.Sprintf("Balances, while they were written: %v", err)
						return
					}
				}
				got, err := t.Backend.Balance(t.ctx, other)
				if err != nil || got == nil || got.Int64() < newest {
					faults <- fmt.Sprintf("Balance(%v), while it was written, is %v with error %v, want at least %d", other, got, err, newest)
					return
				}
				newest = got.Int64()
			}
		})
	}
	running.Wait()
	close(faults)
	for fault := range faults {
		t.Errorf("%s", fault)
	}
	for i := range writers {
		t.expectBalance(addr(i), big.NewInt(rounds), "the newest balance counts, also if others are written at the same time")
	}
}

package tonlite_test

import (
	"context"
	"math/big"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

func TestBackendMeetsContractWithGeneratedChain(t *testing.T) {
	chain := liteservertest.GenerateSimplex(60)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		s := start(t, chain, nil)
		return backendtest.Harness{
			Backend:   open(t, s.Config(), nil),
			Blocks:    chain.Blocks(),
			Balances:  chain.Balances(chain.Last()),
			Interrupt: s.Interrupt,
			Stall:     s.Stall,
		}
	})
}

// TestBackendMeetsContractWithSmallCache uses a cache for one masterchain block, so that blocks are
// read again and again.
func TestBackendMeetsContractWithSmallCache(t *testing.T) {
	chain := generate(12)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		s := start(t, chain, nil)
		return backendtest.Harness{
			Backend:   open(t, s.Config(), &tonlite.Options{Cache: 1}),
			Blocks:    chain.Blocks(),
			Balances:  chain.Balances(chain.Last()),
			Interrupt: s.Interrupt,
			Stall:     s.Stall,
		}
	})
}

// TestBackendMeetsContractWithRecordedChain uses the first blocks of one recording and the masterchain
// accounts of another. The states of other workchains are not recorded, so a generated chain
// proves that accounts in them do not exist.
func TestBackendMeetsContractWithRecordedChain(t *testing.T) {
	blocks, err := packs()
	if err != nil {
		t.Fatal(err)
	}
	accounts, err := states()
	if err != nil {
		t.Fatal(err)
	}
	const last = 60 // of 199 masterchain blocks
	stored := chaingql.PageOf(facts(t, "ton-mainnet-genesis").Blocks, chaingql.BlocksQuery{
		First: 1000, Before: chaingql.ChainOrder(0, 0, 0, last+1),
	})
	balances := make(map[chaingql.Address]*big.Int)
	for _, a := range recordedAccounts(t) {
		if a.seqNo == accounts.Last() {
			balances[a.addr] = a.nano
		}
	}
	made := generate(8)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		servers := []*liteservertest.Server{start(t, blocks, nil), start(t, accounts, nil), start(t, made, nil)}
		servers[0].Advance(last)
		b := open(t, servers[0].Config(), &unproven)
		return backendtest.Harness{
			Backend: &recorded{
				Backend: b, SeqNoIndex: b,
				accounts: map[int32]*tonlite.Backend{
					-1: open(t, servers[1].Config(), &unproven), 0: open(t, servers[2].Config(), nil),
				},
			},
			Blocks:    stored,
			Balances:  balances,
			Interrupt: servers[0].Interrupt,
			Stall: func() (resume func()) {
				var all []func()
				for _, s := range servers {
					all = append(all, s.Stall())
				}
				return func() {
					for _, resume := range all {
						resume()
					}
				}
			},
		}
	})
}

// A recorded Backend reads blocks from one server, and accounts from other servers.
type recorded struct {
	chaingql.Backend
	chaingql.SeqNoIndex
	accounts map[int32]*tonlite.Backend // by workchain
}

func (r *recorded) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	return r.accounts[addr.Workchain].Balance(ctx, addr)
}

package tonlite_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestFalseResponsesAreRejected queries a server that sends false responses. No call may return a
// wrong result. If there is also an honest server, each call must return the right result.
func TestFalseResponsesAreRejected(t *testing.T) {
	chain := liteservertest.GenerateSimplex(34) // ends with two shards
	facts := chain.Blocks()
	masters, workchain := int32(-1), int32(0)
	var rich chaingql.Address // an account in the first shard
	for addr, nano := range chain.Balances(34) {
		if addr.Workchain == 0 && addr.ID[0] < 0x70 && nano.Sign() > 0 {
			rich = addr
		}
	}
	absent := chaingql.Address{ID: [32]byte{0x11}}
	balance := func(addr chaingql.Address) func(b *tonlite.Backend) (any, error) {
		return func(b *tonlite.Backend) (any, error) {
			nano, err := b.Balance(t.Context(), addr)
			if errors.Is(err, chaingql.ErrNotFound) {
				return "not found", nil
			}
			if err != nil {
				return nil, err
			}
			return nano.String(), nil
		}
	}
	page := func(q chaingql.BlocksQuery) func(b *tonlite.Backend) (any, error) {
		return func(b *tonlite.Backend) (any, error) {
			got, err := b.Blocks(t.Context(), q)
			if err != nil {
				return nil, err
			}
			for i, want := range chaingql.PageOf(facts, q) {
				if i >= len(got) || got[i] != want {
					return got, nil
				}
			}
			return "right", nil
		}
	}
	byNumber := func(want chaingql.Block) func(b *tonlite.Backend) (any, error) {
		return func(b *tonlite.Backend) (any, error) {
			got, err := b.BlockBySeqNo(t.Context(), want.Workchain, want.Shard, want.SeqNo)
			if err == nil && got == want {
				return "right", nil
			}
			return got, err
		}
	}
	follow := func(b *tonlite.Backend) (any, error) {
		i := 0
		for got, err := range b.Follow(t.Context(), "") {
			if err != nil {
				return nil, err
			}
			if got != facts[i] {
				return got, nil
			}
			if i++; i == len(facts) {
				break
			}
		}
		return "right", nil
	}
	has := chain.Balances(34)[rich].String()
	shards := chaingql.BlocksQuery{Last: 20, Workchain: &workchain}
	early := chaingql.BlocksQuery{First: 20, Workchain: &masters}
	oldMaster := chaingql.PageOf(facts, early)[17] // FalsePast forges it
	oldShard := chaingql.PageOf(facts, chaingql.BlocksQuery{First: 20, Workchain: &workchain})[19]

	for _, row := range []struct {
		name string
		lie  liteservertest.Lie
		ask  func(b *tonlite.Backend) (any, error)
		want string
	}{
		{"false balance", liteservertest.FalseBalance, balance(rich), has},
		{"false balance with a forged pruned branch in the proof", liteservertest.FalseUpdate, balance(rich), has},
		{"false balance below a pruned branch", liteservertest.FalseRoot, balance(rich), has},
		{"existing account omitted", liteservertest.FalseAbsence, balance(rich), has},
		{"existing account with a proof of another shard", liteservertest.FalseShard, balance(rich), has},
		{"missing account with a proof of another shard", liteservertest.FalseShard, balance(absent), "not found"},
		{"garbage instead of an account", liteservertest.Garbage, balance(rich), has},
		{"bag of billions of cells instead of an account", liteservertest.Bomb, balance(rich), has},
		{"changed bytes of a masterchain block", liteservertest.FalseBytes, page(early), "right"},
		{"bytes of another block", liteservertest.FalseBlock, page(early), "right"},
		{"garbage instead of a masterchain block", liteservertest.Garbage, page(early), "right"},
		{"bag of billions of cells instead of a masterchain block", liteservertest.Bomb, page(early), "right"},
		{"forged old blocks", liteservertest.FalseHistory, page(early), "right"},
		{"some forged old blocks", liteservertest.FalsePast, page(early), "right"},
		{"proofs of old blocks in small steps", liteservertest.Meander, page(early), "right"},
		{"forged header of a shard block", liteservertest.FalseHeader, page(shards), "right"},
		{"header of another block", liteservertest.FalseNumber, page(shards), "right"},
		{"forged masterchain block by number", liteservertest.FalsePast, byNumber(oldMaster), "right"},
		{"forged bytes of a masterchain block by number", liteservertest.FalseBytes, byNumber(oldMaster), "right"},
		{"forged id of a shard block by number", liteservertest.FalseHistory, byNumber(oldShard), "right"},
		{"forged creation of a shard block by number", liteservertest.FalseCreation, byNumber(oldShard), "right"},
		{"forged header of a shard block by number", liteservertest.FalseHeader, byNumber(oldShard), "right"},
		{"garbage instead of a shard block by number", liteservertest.Garbage, byNumber(oldShard), "right"},
		{"forged old blocks in Follow", liteservertest.FalseHistory, follow, "right"},
		{"forged newest block", liteservertest.FalseHead, page(chaingql.BlocksQuery{Last: 1}), "right"},
		{"response to another query", liteservertest.WrongKind, page(chaingql.BlocksQuery{Last: 1}), "right"},
	} {
		t.Run(row.name, func(t *testing.T) {
			liar, honest := start(t, chain, nil), start(t, chain, nil)
			liar.Advance(33)
			honest.Advance(33)
			alone := open(t, liar.Config(), nil)
			both := open(t, liar.Config(honest), nil)
			liar.Advance(34)
			honest.Advance(34)
			liar.SetLie(row.lie)
			got, err := row.ask(alone)
			if err == nil && got != row.want { // a call may succeed if it does not need the false part
				t.Errorf("got the false result %v", got)
			}
			// Instead of a forged old block, the right one is read by its id, which a proven block contains.
			if err == nil && row.lie != liteservertest.FalseHistory && row.lie != liteservertest.FalsePast {
				t.Error("got no error for a false response")
			}
			if errors.Is(err, chaingql.ErrNotFound) || errors.Is(err, chaingql.ErrCursorTooOld) ||
				errors.Is(err, chaingql.ErrBadCursor) || errors.Is(err, chaingql.ErrBlockNotFound) {
				t.Errorf("got error %v, which claims a fact that is false", err)
			}
			if got, err := row.ask(both); err != nil || got != row.want {
				t.Errorf("with an additional honest server: got %v and error %v", got, err)
			}
		})
	}
}

// TestCyclicProofIsRejected uses proofs with valid links that never reach the target.
func TestCyclicProofIsRejected(t *testing.T) {
	s := start(t, generate(30), nil)
	s.SetLie(liteservertest.Circles)
	b, err := tonlite.Open(t.Context(), s.Config(), nil)
	if err == nil {
		b.Close()
		t.Fatal("Open returned no error")
	}
	if n := s.Asked()["getBlockProof"]; n > 2 {
		t.Errorf("Open requested %d proofs before it failed with %v, want at most 2", n, err)
	}
}

// TestProofsInSmallStepsDoNotDelayPages prefers a server whose proofs lead from one key block to the previous one. It
// responds in time, so no response is hedged.
func TestProofsInSmallStepsDoNotDelayPages(t *testing.T) {
	chain := generate(300)
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		liar, honest := m.start(chain), m.start(chain)
		liar.Delay(100 * time.Millisecond)
		honest.Delay(30 * time.Millisecond)
		b := m.open(liar.Config(honest), &tonlite.Options{Cache: 8})
		liar.SetLie(liteservertest.Meander)
		for _, seqNo := range []uint32{20, 100, 200} {
			b.Prefer(0)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			_, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50, After: cursor(seqNo)})
			if cancel(); err != nil {
				t.Errorf("page after block %d: got error %v", seqNo, err)
			}
			time.Sleep(time.Second) // then the liar is used again
		}
	})
}

// TestProofsInSmallStepsDoNotDelayOpen lets such a server connect first, while the newest block is 142 key blocks away.
func TestProofsInSmallStepsDoNotDelayOpen(t *testing.T) {
	chain := generate(1000)
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		liar, honest := m.start(chain), m.start(chain)
		liar.SetLie(liteservertest.Meander)
		honest.Delay(20 * time.Millisecond) // the liar connects first
		m.open(liar.Config(honest), &tonlite.Options{})
		if n := liar.Asked()["getBlockProof"]; n > 2 {
			t.Errorf("Open requested %d proofs from a server that sends only one link, want at most 2", n)
		}
	})
}

// TestBalanceDoesNotDependOnTheAccountsCells sends something else instead of them. The balance is a part of the
// proof, while the cells of an account may be as large as the network allows.
func TestBalanceDoesNotDependOnTheAccountsCells(t *testing.T) {
	chain, err := states()
	s := start(t, chain, err)
	b := open(t, s.Config(), &unproven)
	for addr := range facts(t, "ton-mainnet-2019-masterchain-accounts-by-block").Balances {
		s.SetLie(liteservertest.Truth)
		want, err := b.Balance(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		s.SetLie(liteservertest.FalseState)
		if got, err := b.Balance(t.Context(), addr); err != nil || got.Cmp(want) != 0 {
			t.Errorf("account %v: got balance %v and error %v, want %v", addr, got, err, want)
		}
	}
}

// TestUnprovenOptionStillVerifiesBalances sends false responses about accounts. Unproven accepts only
// the ids of masterchain blocks without proof.
func TestUnprovenOptionStillVerifiesBalances(t *testing.T) {
	chain, err := states()
	s := start(t, chain, err)
	b := open(t, s.Config(), &unproven)
	for addr := range facts(t, "ton-mainnet-2019-masterchain-accounts-by-block").Balances {
		for _, lie := range []liteservertest.Lie{
			liteservertest.FalseBalance, liteservertest.FalseUpdate, liteservertest.FalseRoot,
			liteservertest.FalseAbsence, liteservertest.Garbage,
		} {
			s.SetLie(liteservertest.Truth)
			if _, err := b.Balance(t.Context(), addr); err != nil {
				t.Fatal(err)
			}
			s.SetLie(lie)
			if nano, err := b.Balance(t.Context(), addr); err == nil || errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("false response of kind %d for account %v: got balance %v and error %v", lie, addr, nano, err)
			}
			b.Close() // because it does not use the server for a while
			s.SetLie(liteservertest.Truth)
			b = open(t, s.Config(), &unproven)
		}
	}
}

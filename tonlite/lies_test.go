package tonlite_test

import (
	"errors"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestLiesAreRefused asks one question of a server that lies about it: no
// answer is ever a wrong one. A second server that tells the truth is asked
// then, and the answer is right.
func TestLiesAreRefused(t *testing.T) {
	chain := liteservertest.MadeSimplex(34) // as it ends, there are two shards
	facts := chain.Blocks()
	masters, workchain := int32(-1), int32(0)
	var rich chaingql.Address // an account of the first shard
	for addr, nano := range chain.Balances(34) {
		if addr.Workchain == 0 && addr.ID[0] < 0x70 && nano.Sign() > 0 {
			rich = addr
		}
	}
	nobody := chaingql.Address{ID: [32]byte{0x11}}
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

	for _, row := range []struct {
		name string
		lie  liteservertest.Lie
		ask  func(b *tonlite.Backend) (any, error)
		want string
	}{
		{"a balance", liteservertest.FalseBalance, balance(rich), has},
		{"a balance, by a pruned branch that misleads", liteservertest.FalseUpdate, balance(rich), has},
		{"a balance, below a pruned branch", liteservertest.FalseRoot, balance(rich), has},
		{"an account that is there", liteservertest.FalseAbsence, balance(rich), has},
		{"an account that is there, by another shard", liteservertest.FalseShard, balance(rich), has},
		{"an account's state", liteservertest.FalseState, balance(rich), has},
		{"an account without its state", liteservertest.BareAccount, balance(rich), has},
		{"an account that is not there, by another shard", liteservertest.FalseShard, balance(nobody), "not found"},
		{"an account, in garbage", liteservertest.Garbage, balance(rich), has},
		{"an account, by a bomb", liteservertest.Bomb, balance(rich), has},
		{"the bytes of a masterchain block", liteservertest.FalseBytes, page(early), "right"},
		{"which block it is", liteservertest.FalseBlock, page(early), "right"},
		{"a masterchain block, in garbage", liteservertest.Garbage, page(early), "right"},
		{"a masterchain block, by a bomb", liteservertest.Bomb, page(early), "right"},
		{"blocks of the past", liteservertest.FalseHistory, page(early), "right"},
		{"some blocks of the past", liteservertest.FalsePast, page(early), "right"},
		{"the header of a shard block", liteservertest.FalseHeader, page(shards), "right"},
		{"whose header it is", liteservertest.FalseNumber, page(shards), "right"},
		{"all of the past", liteservertest.FalseHistory, follow, "right"},
		{"the newest block", liteservertest.FalseHead, page(chaingql.BlocksQuery{Last: 1}), "right"},
		{"what was asked", liteservertest.WrongKind, page(chaingql.BlocksQuery{Last: 1}), "right"},
	} {
		t.Run(row.name, func(t *testing.T) {
			liar, honest := start(t, chain, nil), start(t, chain, nil)
			liar.Advance(33)
			honest.Advance(33)
			alone := open(t, liar.Config(), nil)
			both := open(t, liar.Config(honest), nil)
			liar.Advance(34)
			honest.Advance(34)
			liar.Tell(row.lie)
			got, err := row.ask(alone)
			if err == nil && got != row.want { // a lie may concern nothing that was needed
				t.Errorf("it is believed: %v", got)
			}
			// Where others follow from a block that is proven, they are read by their true names.
			if err == nil && row.lie != liteservertest.FalseHistory && row.lie != liteservertest.FalsePast {
				t.Error("it is not noticed")
			}
			if errors.Is(err, chaingql.ErrNotFound) || errors.Is(err, chaingql.ErrCursorTooOld) || errors.Is(err, chaingql.ErrBadCursor) {
				t.Errorf("the refusal says something of the chain: %v", err)
			}
			if got, err := row.ask(both); err != nil || got != row.want {
				t.Errorf("with an honest server beside the liar: %v, %v", got, err)
			}
		})
	}
}

// TestProofThatLeadsInCirclesIsRefused has each link be a good one: what is proven
// is always behind the block that was to be.
func TestProofThatLeadsInCirclesIsRefused(t *testing.T) {
	s := start(t, liteservertest.Made(30), nil)
	s.Tell(liteservertest.Circles)
	b, err := tonlite.Open(t.Context(), s.Config(), nil)
	if err == nil {
		b.Close()
		t.Fatal("it opens")
	}
	if n := s.Asked()["getBlockProof"]; n > 2 {
		t.Errorf("it went on for %d answers: %v", n, err)
	}
}

// TestUnprovenNetworkIsStillHashed has a server lie about everything but which
// masterchain blocks there are, which is taken at its word there.
func TestUnprovenNetworkIsStillHashed(t *testing.T) {
	recording(t)
	chain, err := states()
	s := start(t, chain, err)
	b := open(t, s.Config(), &unproven)
	for addr := range facts(t, "ton-mainnet-2019-masterchain-accounts-by-block.json").Balances {
		for _, lie := range []liteservertest.Lie{
			liteservertest.FalseBalance, liteservertest.FalseUpdate, liteservertest.FalseRoot, liteservertest.FalseAbsence, liteservertest.FalseState, liteservertest.Garbage,
		} {
			s.Tell(liteservertest.Truth)
			if _, err := b.Balance(t.Context(), addr); err != nil {
				t.Fatal(err)
			}
			s.Tell(lie)
			if nano, err := b.Balance(t.Context(), addr); err == nil || errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("lie %d about %v is believed: %v, %v", lie, addr, nano, err)
			}
			b.Close() // the server is left alone by this one now
			s.Tell(liteservertest.Truth)
			b = open(t, s.Config(), &unproven)
		}
	}
}

package tonlite_test

import (
	"context"
	"encoding/json"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
)

// TestFollowReadsRecordedChainDespiteServerRestarts follows ten recorded minutes of TON's
// mainnet. The server receives the blocks one after another and restarts twice.
func TestFollowReadsRecordedChainDespiteServerRestarts(t *testing.T) {
	chain, err := packs()
	s := start(t, chain, err)
	want := facts(t, "ton-mainnet-genesis").Blocks
	if len(want) != 805 {
		t.Fatalf("the recording has %d blocks, want 805", len(want))
	}
	s.Advance(20)
	b := open(t, s.Config(), &unproven)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var (
		got      []chaingql.Block
		last     chaingql.Cursor
		failures int
	)
	for len(got) < len(want) && ctx.Err() == nil {
		for block, err := range b.Follow(ctx, last) {
			if err != nil {
				failures++
				time.Sleep(5 * time.Millisecond)
				break
			}
			got, last = append(got, block), block.Cursor
			if len(got) == len(want) {
				break
			}
			if block.Workchain == -1 && block.SeqNo >= 20 {
				s.Advance(min(block.SeqNo+1, chain.Last()))
				if block.SeqNo == 70 || block.SeqNo == 130 {
					s.Stop()
					if err := s.Restart(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	same(t, got, want)
	if failures < 2 {
		t.Errorf("Follow failed %d times, want at least once for each of 2 restarts", failures)
	}
}

// TestRecordedBalancesAreProven reads the balances of all recorded masterchain accounts after
// each of eight blocks.
func TestRecordedBalancesAreProven(t *testing.T) {
	chain, err := states()
	s := start(t, chain, err)
	s.Advance(chain.First())
	b := open(t, s.Config(), &unproven)
	checked := 0
	for seqNo := chain.First(); seqNo <= chain.Last(); seqNo++ {
		s.Advance(seqNo)
		for _, a := range recordedAccounts(t) {
			if a.seqNo != seqNo {
				continue
			}
			nano, err := b.Balance(t.Context(), a.addr)
			if err != nil {
				t.Fatalf("balance of %v after block %d: got error %v", a.addr, seqNo, err)
			}
			if nano.Cmp(a.nano) != 0 {
				t.Errorf("balance of %v after block %d: got %v, want %v", a.addr, seqNo, nano, a.nano)
			}
			checked++
		}
	}
	if checked != 64 {
		t.Errorf("%d balances were checked, want 8 after each of 8 blocks", checked)
	}
}

// An account is the recorded balance of one account after the masterchain block seqNo.
type account struct {
	addr  chaingql.Address
	nano  *big.Int
	seqNo uint32
}

func recordedAccounts(t testing.TB) (accounts []account) {
	t.Helper()
	name := "ton-mainnet-2019-masterchain-accounts-by-block.json.gz"
	var file struct {
		Accounts []struct {
			Address, Balance string
			SeqNo            uint32 `json:"state_seq_no"`
		}
	}
	if err := json.Unmarshal(testkit.ReadGzip(t, filepath.Join(recordings, name)), &file); err != nil {
		t.Fatal(err)
	}
	for _, row := range file.Accounts {
		addr, err := chaingql.ParseAddress(row.Address)
		nano, ok := new(big.Int).SetString(row.Balance, 10)
		if err != nil || !ok {
			t.Fatalf("malformed recorded account %+v: %v", row, err)
		}
		accounts = append(accounts, account{addr, nano, row.SeqNo})
	}
	return accounts
}

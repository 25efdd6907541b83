package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func numbered(n int, from, to string) transaction {
	return transaction{ID: fmt.Sprint(n), From: from, To: to}
}

func TestLedgerListsNewestTransactionsOfEachAccount(t *testing.T) {
	book, random := newLedger(), rand.New(rand.NewPCG(1, 2))
	var all []transaction
	for n := range kept + 500 {
		tx := numbered(n, fmt.Sprint("a", random.IntN(5)), fmt.Sprint("a", random.IntN(5)))
		all = append(all, tx)
		book.add(tx)
	}
	all = all[len(all)-kept:]
	for _, account := range []string{"", "a0", "a1", "a4", "unknown"} {
		want := []transaction{}
		for _, tx := range slices.Backward(all) {
			if account == "" || tx.From == account || tx.To == account {
				want = append(want, tx)
			}
		}
		for _, n := range []int{0, 1, most, kept + 1} {
			if got := book.newest(n, account); got == nil || !slices.Equal(got, want[:min(n, len(want))]) {
				t.Errorf("%d transactions of account %q differ from those that a search finds", n, account)
			}
		}
	}
}

func TestLedgerForgetsAccountsOfDroppedTransactions(t *testing.T) {
	book := newLedger()
	for n := range 3 * kept {
		book.add(numbered(n, fmt.Sprint("from", n), fmt.Sprint("to", n)))
	}
	if got, want := len(book.lists), 1+2*kept; got != want {
		t.Errorf("the ledger has lists of %d accounts, want %d", got, want)
	}
	if got := book.newest(1, "from0"); len(got) > 0 {
		t.Errorf("the ledger still has %+v", got)
	}
}

func TestSlowReaderReceivesAllTransactionsOrAnError(t *testing.T) {
	book, n := newLedger(), 0
	grow := func(count int) {
		for range count {
			book.add(numbered(n, "a", "b"))
			n++
		}
	}
	grow(kept)
	events, received := book.follow(t.Context(), "b"), kept
	grow(kept) // all of them are kept
	for event, err := range events {
		if received == 2*kept+1 {
			var missed missedError
			if !errors.As(err, &missed) {
				t.Errorf("the sequence yielded %v and error %v, want a missedError", event, err)
			}
			return
		}
		if err != nil || event.(transaction).ID != fmt.Sprint(received) {
			t.Fatalf("the sequence yielded %v and error %v, want transaction %d", event, err, received)
		}
		received++
		switch received {
		case 2 * kept:
			grow(1)
		case 2*kept + 1:
			grow(kept + 1)
		}
	}
	t.Error("the sequence ended without an error")
}

func TestChainKeepsBlocksOfKeptTransactions(t *testing.T) {
	chain, book := memchain.New(), newLedger()
	for n := range uint32(kept) {
		if err := grow(chain, book, n+1); err != nil {
			t.Fatal(err)
		}
	}
	blocks, err := chain.Blocks(t.Context(), chaingql.BlocksQuery{Last: 2 * kept})
	if err != nil {
		t.Fatal(err)
	}
	all := book.newest(kept, "")
	if oldest := all[len(all)-1]; len(blocks) != kept/perBlock+1 || blocks[1].Cursor != oldest.Block {
		t.Errorf("the chain has %d blocks, and the second is %q, want %d and %q, that of the oldest transaction",
			len(blocks), blocks[1].Cursor, kept/perBlock+1, oldest.Block)
	}
}

package main

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
)

// A transaction is what this host shows beside the chain's blocks.
type transaction struct {
	ID       string
	Block    chaingql.Cursor // of the block that it is in
	From, To string
	Amount   int // in nano-units
}

// A ledger keeps all transactions, in the order of the chain. The zero value is
// an empty one.
type ledger struct {
	mu   sync.Mutex // guards what follows
	all  []transaction
	more chan struct{} // closed when there are more; nil while nobody waits
}

func (l *ledger) add(transactions ...transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, transactions...)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// touches tells whether a transaction is of an account; all are of "".
func (t transaction) touches(account string) bool {
	return account == "" || t.From == account || t.To == account
}

// newest returns the last n transactions of an account, the newest first.
func (l *ledger) newest(n int, account string) []transaction {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := []transaction{}
	for _, t := range slices.Backward(l.all) {
		if len(found) == n {
			break
		}
		if t.touches(account) {
			found = append(found, t)
		}
	}
	return found
}

// follow yields the transactions of an account that are added from now on, until
// ctx is done. A slow reader reads on from where it was: nothing is left out,
// and nothing is queued for it.
func (l *ledger) follow(ctx context.Context, account string) iter.Seq2[any, error] {
	l.mu.Lock()
	next := len(l.all)
	l.mu.Unlock()
	return func(yield func(any, error) bool) {
		for {
			l.mu.Lock()
			if l.more == nil {
				l.more = make(chan struct{})
			}
			added, more := l.all[next:], l.more
			l.mu.Unlock()
			for _, t := range added {
				if t.touches(account) && !yield(t, nil) {
					return
				}
			}
			next += len(added)
			if len(added) > 0 {
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

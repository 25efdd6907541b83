package main

import (
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
)

// A transaction is the data that this host adds to the chain.
type transaction struct {
	ID       string
	Block    chaingql.Cursor // cursor of its block
	From, To string
	Amount   int // in nano
}

// A ledger holds all transactions in chain order. The zero value is empty.
type ledger struct {
	mu   sync.Mutex // guards the fields below
	all  []transaction
	more chan struct{} // closed when a transaction is added; nil if nothing waits
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

// touches reports whether the account is the sender or the recipient of the transaction. If account is "", touches
// always returns true.
func (t transaction) touches(account string) bool {
	return account == "" || t.From == account || t.To == account
}

// newest returns the last n transactions of an account, newest first.
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

// follow yields the new transactions of an account until ctx is done. A slow reader continues where it stopped: it
// misses no transaction, and no queue grows for it.
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

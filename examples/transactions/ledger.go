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
	Amount   int64 // in nano
}

// kept is the maximum number of transactions that the ledger keeps.
const kept = 10_000

// A ledger holds the newest transactions in chain order.
type ledger struct {
	mu      sync.Mutex               // guards the fields below
	lists   map[string][]transaction // by account, so that no query searches; "" has the transactions of all accounts
	dropped int                      // number of transactions that are no longer kept
	more    chan struct{}            // closed when a transaction is added; nil if nothing waits
}

func newLedger() *ledger { return &ledger{lists: map[string][]transaction{}} }

func (l *ledger) add(transactions ...transaction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range transactions {
		for _, account := range t.accounts() {
			l.lists[account] = append(l.lists[account], t)
		}
		if len(l.lists[""]) > kept {
			l.drop(l.lists[""][0])
		}
	}
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

// drop removes the oldest transaction, which is the first one in each of its lists.
func (l *ledger) drop(oldest transaction) {
	l.dropped++
	for _, account := range oldest.accounts() {
		l.lists[account] = l.lists[account][1:]
		if len(l.lists[account]) == 0 {
			delete(l.lists, account)
		}
	}
}

// accounts returns the keys of the lists that contain the transaction.
func (t transaction) accounts() []string {
	return slices.Compact([]string{"", t.From, t.To}) // From and To may be equal
}

// newest returns the last n transactions of an account, newest first.
func (l *ledger) newest(n int, account string) []transaction {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.lists[account]
	found := append([]transaction{}, list[max(0, len(list)-n):]...) // not nil, which would be null
	slices.Reverse(found)
	return found
}

// follow yields the new transactions of an account until ctx is done. A slow reader continues where it stopped, and no
// queue grows for it. If it is so slow that it misses a transaction, follow yields an error.
func (l *ledger) follow(ctx context.Context, account string) iter.Seq2[any, error] {
	l.mu.Lock()
	next := l.dropped + len(l.lists[""])
	l.mu.Unlock()
	return func(yield func(any, error) bool) {
		for {
			l.mu.Lock()
			if l.more == nil {
				l.more = make(chan struct{})
			}
			more, missed := l.more, next < l.dropped
			added := l.lists[""][max(0, next-l.dropped):]
			l.mu.Unlock()
			if missed {
				yield(nil, missedError{})
				return
			}
			for _, t := range added {
				if slices.Contains(t.accounts(), account) && !yield(t, nil) {
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

// A missedError is an error that clients receive as it is, because it has extensions. Other errors are masked.
type missedError struct{}

func (missedError) Error() string { return "The client read too slowly and has missed transactions." }

func (missedError) Extensions() map[string]any { return map[string]any{"code": "TRANSACTIONS_MISSED"} }

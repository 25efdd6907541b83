package natschain

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

const (
	// pageRoom is the maximum expected size of the responses in flight for pages. They take 170 ms at 100 Mbit/s, so
	// that other responses, messages of Follow and pings do not wait longer. With messages of a [Writer], 64 pages of
	// 50 blocks fit: as many as a Handler reads at the same time by default (Limits.InFlight).
	pageRoom = 2 << 20
	// roomUnit is the unit in which pages occupy the room.
	roomUnit = 32 << 10
)

var errTooManyPages = errors.New("too many pages are being read for the speed of the connection: retry later")

// A pageQueue admits pages in the order of their arrival, as many as fit into pageRoom. If pages need more bytes than
// the connection can transfer within their timeouts, those that are admitted nevertheless arrive in time. If all of
// them were read at the same time, all would fail. Pages for subscriptions have an order of their own, so of
// the waiting pages of clients, at most one is admitted before them. These two enter at the same time, which is
// possible because any two pages fit into the room.
type pageQueue struct {
	turn        semaphore    // held by the page of a client that is admitted next
	ownTurn     semaphore    // held by the page for subscriptions that is admitted next
	room        semaphore    // held by each admitted page, once for each roomUnit
	messageSize atomic.Int64 // moving average of the size of messages in batches
}

func newPageQueue() pageQueue {
	return pageQueue{turn: make(semaphore, 1), ownTurn: make(semaphore, 1), room: make(semaphore, pageRoom/roomUnit)}
}

// received includes the size of a message in the average.
func (p *pageQueue) received(size int) {
	average := cmp.Or(p.messageSize.Load(), int64(size))
	p.messageSize.Store(average + (int64(size)-average)/64)
}

// units returns how much of the room a page of q occupies. No request of a page returns more than batchBytes.
func (p *pageQueue) units(q *chaingql.BlocksQuery) int {
	n := max(q.First, q.Last)
	if (q.Workchain != nil || q.Shard != nil) && n <= maxScannedPage {
		n = scanLength(n)
	}
	return max(1, (min(n*int(p.messageSize.Load()), batchBytes)+roomUnit-1)/roomUnit)
}

// A leaveKey is the key of the function in the context of a page that ends its stay in the pageQueue.
type leaveKey struct{}

// enter waits until q is admitted. The caller must call leave. If less than the time of one attempt of a request would
// be left until the deadline of ctx, enter returns an error, because reading the page would probably be in vain.
// A page of one block does not wait: Handler.Health reads such pages.
func (p *pageQueue) enter(ctx context.Context, q *chaingql.BlocksQuery) (_ context.Context, leave func(), err error) {
	if max(q.First, q.Last) == 1 {
		return ctx, func() {}, nil
	}
	deadline, _ := ctx.Deadline()
	waiting, cancel := context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/attempts))
	defer cancel()
	entered, units, turn := 0, p.units(q), p.turn
	if chaingql.ForSubscriptions(ctx) {
		turn = p.ownTurn
	}
	if err = turn.acquire(waiting); err == nil {
		for err == nil && entered < units {
			if err = p.room.acquire(waiting); err == nil {
				entered++
			}
		}
		turn.release()
	}
	leave = sync.OnceFunc(func() {
		for range entered {
			p.room.release()
		}
	})
	if err != nil {
		leave()
		if ctx.Err() == nil {
			err = errTooManyPages
		}
		return nil, nil, failed("read blocks", err)
	}
	return context.WithValue(ctx, leaveKey{}, leave), leave, nil
}

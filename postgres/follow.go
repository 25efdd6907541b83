package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/chaingql/chaingql"
)

// Follow yields every block after a cursor, as [chaingql.Backend] specifies. It reads the
// blocks after the cursor from the table and waits for a notification, at most for
// [Options].RecheckInterval. Then it reads again. If blocks were pruned, the cursor "" is too old.
//
// All Follow calls of a process that read from the same database share one connection for
// LISTEN. If that connection is lost, they end with an error. On a read-only replica, Follow
// polls instead, also if the server has become one since Open.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	c := b.chain.Load()
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.follow(ctx, c, after, yield); err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// follow runs until it fails or yield returns false. In the second case it returns nil.
func (b *Backend) follow(
	ctx context.Context, c *chain, after chaingql.Cursor, yield func(chaingql.Block, error) bool,
) error {
	if err := checkCursor(after); err != nil {
		return err
	}
	var (
		wake  = make(chan struct{}, 1)
		over  <-chan struct{} // closed when the listener has ended; nil if Follow polls
		l     *listener
		every = b.opts.PollInterval
	)
	if every == 0 { // listen before the first read, so that no block is missed between the two
		var err error
		if l, err = b.listen.join(wake); err != nil {
			return err
		}
		defer b.listen.leave(l, wake)
		select {
		case <-l.ready:
			over, every = l.done, b.opts.RecheckInterval
		case <-l.done:
			if !isReplica(l.err) {
				return b.cause(l.err)
			}
			every = replicaPoll // the server has become a read-only replica since Open
		case <-ctx.Done():
			return ctx.Err()
		case <-b.closed:
			return errClosed
		}
	}
	look := time.NewTimer(every)
	defer look.Stop()
	for {
		page, pruned, err := b.page(ctx, c, chaingql.BlocksQuery{After: after, First: chaingql.MaxPage}, b.read)
		if err != nil {
			return b.cause(err)
		}
		if after < pruned {
			return chaingql.ErrCursorTooOld
		}
		for _, block := range page {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(block, nil) {
				return nil
			}
			after = block.Cursor
		}
		if len(page) == chaingql.MaxPage {
			wakeUp(wake) // there may be more
		}
		look.Reset(every)
		select {
		case <-wake:
		case <-look.C:
		case <-over:
			return b.cause(l.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-b.closed:
			return errClosed
		}
	}
}

// cause returns the reason for err. If the Backend was closed, that is errClosed, because
// Close stops listeners and makes reads fail. Otherwise it is err itself.
func (b *Backend) cause(err error) error {
	select {
	case <-b.closed:
		return errClosed
	default:
		return err
	}
}

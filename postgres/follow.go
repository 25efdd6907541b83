package postgres

import (
	"context"
	"iter"
	"time"

	"github.com/chaingql/chaingql"
)

// Follow yields every block after a cursor, as [chaingql.Backend] describes
// it: it reads the table from its cursor on, waits until it is told that there
// is more, or for [Options].Look, and reads on. Where blocks were pruned, "" is
// too old. All Follows of a process to one database share one connection for
// LISTEN; when that is lost they end.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := b.follow(ctx, after, yield); err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// follow returns why it ended, nil where it was left.
func (b *Backend) follow(ctx context.Context, after chaingql.Cursor, yield func(chaingql.Block, error) bool) error {
	if err := checkCursor(after); err != nil {
		return err
	}
	var (
		wake  = make(chan struct{}, 1)
		over  <-chan struct{} // never, where there is no line
		l     *line
		every = b.opts.Poll
	)
	if every == 0 { // listen before reading, so that nothing falls between
		var err error
		if l, err = b.line.join(wake); err != nil {
			return err
		}
		defer b.line.leave(l, wake)
		select {
		case <-l.ready:
		case <-l.over:
			return b.cause(l.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-b.closed:
			return errClosed
		}
		over, every = l.over, b.opts.Look
	}
	look := time.NewTimer(every)
	defer look.Stop()
	for {
		page, pruned, err := b.page(ctx, chaingql.BlocksQuery{After: after, First: chaingql.MaxPage})
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
			ring(wake) // there is more
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

// cause is why a line is over, or a read failed: Close hangs up, and closes the
// connections, too.
func (b *Backend) cause(err error) error {
	select {
	case <-b.closed:
		return errClosed
	default:
		return err
	}
}

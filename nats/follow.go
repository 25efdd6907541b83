package natschain

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

const (
	// If no message arrives during a probeInterval, Follow requests the newest message of the stream. If the
	// consumer does not deliver that message during another probeInterval, Follow replaces the consumer.
	probeInterval    = 3 * time.Second
	maxIdleConsumers = 5 // Follow fails after this many consecutive consumers without a block
)

// Follow yields every block after a cursor, as [chaingql.Backend] requires. If blocks
// were pruned, the cursor "" is too old. If the connection is lost, Follow yields an
// error and ends.
//
// Follow reads through a JetStream consumer that one server keeps in memory and that
// needs no acknowledgements. If a message does not follow the previous one, or if the
// consumer sends no heartbeats or lags behind the stream, Follow replaces it with a new
// consumer, which continues after the last block.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	epoch := b.epoch.Load()
	return func(yield func(chaingql.Block, error) bool) {
		err := b.follow(ctx, epoch, after, yield)
		if errors.Is(err, errReplaced) {
			b.reset()
		}
		if errors.Is(err, errReplaced) || errors.Is(err, chaingql.ErrCursorTooOld) {
			if changed := b.checkEpoch(ctx, epoch); changed != nil {
				err = changed
			}
		}
		if err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// A reader holds the state of one Follow call.
type reader struct {
	b      *Backend
	epoch  *string         // of the stream when Follow was called
	cursor chaingql.Cursor // cursor of the last block yielded; at first the cursor passed to Follow
	at     place           // place of the last block read
	fresh  bool            // whether the consumer has not delivered a block yet
	yield  func(chaingql.Block, error) bool
}

// follow implements Follow. It returns the error that ends the iteration, or nil if the
// caller stopped it.
func (b *Backend) follow(
	ctx context.Context, epoch *string, after chaingql.Cursor, yield func(chaingql.Block, error) bool,
) error {
	if err := checkCursor(after); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, stop := b.connected(ctx)
	defer stop()
	r := &reader{b: b, epoch: epoch, cursor: after, yield: yield}
	if after != "" {
		at, err := b.place(ctx, after)
		if err != nil {
			return followError(ctx, err)
		}
		if at.tooOld {
			return chaingql.ErrCursorTooOld
		}
		r.at = at
	}
	for idle := 0; ; {
		stopped, err := r.read(ctx)
		if stopped {
			return nil
		}
		if idle++; !r.fresh {
			idle = 0
		}
		if ctx.Err() != nil || idle == maxIdleConsumers || !b.restartable(err) {
			return followError(ctx, err)
		}
		pause(ctx, pauseBetween)
	}
}

// restartable reports whether a new consumer may succeed after err, because err concerns
// the consumer and not the stream.
func (b *Backend) restartable(err error) bool {
	return isAny(err, errSkipped, errForked, errEnded, errSilent) || b.retryable(err)
}

// connected returns a context that is canceled when the connection is lost or closed. The
// caller must call the returned function to release resources.
func (b *Backend) connected(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	changed := b.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	over := make(chan struct{})
	go func() {
		defer close(over)
		select {
		case status := <-changed:
			if status == nats.CLOSED {
				cancel(errClosed)
			}
			cancel(errLost)
		case <-ctx.Done():
		}
	}()
	if b.nc.IsClosed() {
		cancel(errClosed)
	}
	return ctx, func() {
		cancel(nil)
		<-over
		b.nc.RemoveStatusListener(changed)
	}
}

// followError returns the cause of ctx if ctx is done, and err otherwise.
func followError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failed("follow", context.Cause(ctx))
	}
	return failed("follow", err)
}

// errSkipped is returned if a message was not delivered, because it was lost in transit or
// removed from the stream.
var errSkipped = errors.New("the consumer did not deliver a message of the stream")

// read creates a consumer that begins after the last block read, and yields its blocks until the consumer fails or the
// caller stops the iteration.
func (r *reader) read(ctx context.Context) (stopped bool, err error) {
	r.fresh = true
	messages, err := r.b.consume(ctx, r.at.seq+1)
	if err != nil {
		return false, err
	}
	defer messages.stop()
	if err := r.b.checkEpoch(ctx, r.epoch); err != nil { // if the stream is replaced from here on, the consumer fails
		return false, err
	}
	// The consumer would also fail if the stream were restored from a backup from here on. If it was restored before,
	// blocks may have the numbers of strays, and would be skipped if one of them were lost in transit.
	head, last := r.b.survey.end()
	if _, err := r.b.checkSurvey(ctx, head, last); err != nil {
		return false, err
	}
	there, err := r.b.present(ctx, r.at)
	if err == nil && !there {
		err = r.b.checkNotPruned(ctx, r.at)
	}
	if err == nil && !there && r.at.linked { // if all blocks expired, the next one names no predecessor
		var next []stored
		if next, err = r.b.chain(ctx, &r.at, r.at.seq+1, maxSeq, 1); len(next) > 0 {
			r.fresh = false
			stopped = !r.deliver(next[0])
		}
	}
	if stopped || err != nil {
		return stopped, err
	}
	l := &linker{b: r.b, at: r.at, seen: r.at.seq}
	for due := uint64(0); ; {
		from := l.seen
		stopped, err := r.listen(ctx, messages, l)
		switch {
		case stopped || err != nil:
			return stopped, err
		case l.seen > from:
			continue
		case l.seen < due:
			return false, errSkipped
		}
		newest, _, err := r.b.newest(ctx, r.b.names.all())
		if err != nil {
			return false, err
		}
		due = newest.seq
	}
}

// listen yields the blocks that arrive during one probeInterval. If no message arrives, the
// caller must check the stream: there may be no new messages, but a message may also be
// lost, or the consumer's server may lag.
func (r *reader) listen(ctx context.Context, messages *consumer, l *linker) (stopped bool, err error) {
	listening, cancel := context.WithTimeout(ctx, probeInterval)
	defer cancel()
	for {
		if l.orphan && len(messages.answers) == 0 {
			if err := r.b.checkOrphan(ctx, l); err != nil {
				return false, err
			}
		}
		s, err := messages.next(listening)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		}
		before := l.seen
		if s.seq <= before { // a consumer on a lagging server may begin too early
			continue
		}
		blocks, err := l.add(s)
		if l.forked && !l.forkIsStray {
			err = r.handleFork(ctx, l, err)
		}
		switch {
		case errors.Is(err, errMissing) && r.fresh:
			return false, r.b.missingError(ctx, r.at)
		case errors.Is(err, errMissing):
			return false, errSkipped
		case err != nil:
			return false, err
		case len(blocks) == 0 && r.b.skip(before+1) < s.seq: // messages were removed, or lost in transit
			next, _, err := r.b.block(ctx, getRequest{Seq: before + 1, Next: r.b.names.all()})
			if err != nil || next.seq != s.seq {
				return false, cmp.Or(err, errSkipped)
			}
		}
		for _, s := range blocks {
			r.fresh = false
			if !r.deliver(s) {
				return true, nil
			}
		}
	}
}

// handleFork handles messages that form a chain but do not continue the newest block. It returns nil if they are not
// blocks, and an error if they may be blocks. The argument err is the error that add returned for them.
func (r *reader) handleFork(ctx context.Context, l *linker, err error) error {
	if errors.Is(err, errForked) {
		return r.b.resolveFork(ctx, l)
	}
	next, err := r.b.chain(ctx, &r.at, r.at.seq+1, maxSeq, 1)
	switch {
	case err != nil:
		return err
	case len(next) == 0:
		return errSkipped
	}
	l.forkIsStray = true
	return nil
}

// deliver yields a block and reports whether the iteration continues.
func (r *reader) deliver(s stored) (more bool) {
	r.at = s.place()
	if s.block.Cursor <= r.cursor { // the cursor passed to Follow is not before this block
		return true
	}
	r.cursor = s.block.Cursor
	r.b.places.add(s)
	r.b.survey.next(&s)
	return r.yield(s.block, nil)
}

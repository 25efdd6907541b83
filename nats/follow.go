package natschain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	heartbeat   = time.Second      // of a consumer that has nothing to say; twice that is silence
	look        = 3 * time.Second  // without a message, after which the stream is asked for its end; beyond that silence
	ahead       = 1000             // blocks that may be under way
	aheadBytes  = 64 << 20         // that they may have: no message may be larger
	abandoned   = 30 * time.Second // after which the server drops a consumer that nobody reads
	mostReplace = 5                // consumers in a row that yield nothing
)

// Follow yields every block after a cursor, as [chaingql.Backend] describes it.
// It reads through an ordered consumer: one in the server's memory that
// acknowledges nothing, from a place in the stream on. Each message must be the
// one behind the last; where one is not, or the consumer falls silent, or has not
// what the stream has, another takes over from that place. Where the connection
// is lost Follow ends. Where blocks were pruned, "" is too old.
func (b *Backend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		err := b.follow(ctx, after, yield)
		if errors.Is(err, errReplaced) {
			b.replaced()
		}
		if err != nil {
			yield(chaingql.Block{}, err)
		}
	}
}

// A reader is one Follow.
type reader struct {
	b      *Backend
	cursor chaingql.Cursor // of the newest block that was yielded, or where it began
	at     place           // that cursor's
	fresh  bool            // the consumer has yielded nothing yet
	yield  func(chaingql.Block, error) bool
}

// follow returns why it ended, nil where it was left.
func (b *Backend) follow(ctx context.Context, after chaingql.Cursor, yield func(chaingql.Block, error) bool) error {
	if err := checkCursor(after); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	ctx, stop := b.connected(ctx)
	defer stop()
	r := &reader{b: b, cursor: after, yield: yield}
	if after != "" {
		at, err := b.place(ctx, after)
		if err != nil {
			return because(ctx, err)
		}
		if at.gone {
			return chaingql.ErrCursorTooOld
		}
		r.at = at
	}
	for idle := 0; ; {
		left, err := r.read(ctx)
		if left {
			return nil
		}
		if idle++; !r.fresh {
			idle = 0
		}
		if ctx.Err() != nil || idle == mostReplace || !b.replaceable(err) {
			return because(ctx, err)
		}
		pause(ctx, pauseBetween)
	}
}

// replaceable tells what befalls a consumer from what befalls the stream.
func (b *Backend) replaceable(err error) bool {
	for _, is := range []error{errSkipped, errForked, jetstream.ErrNoHeartbeat, jetstream.ErrConsumerDeleted,
		jetstream.ErrConsumerNotFound, jetstream.ErrMsgIteratorClosed} {
		if errors.Is(err, is) {
			return true
		}
	}
	return b.passing(err)
}

// connected is ctx until the connection is lost.
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

// because is the reason for which a context ended, or else the error.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return failed("follow", context.Cause(ctx))
	}
	return failed("follow", err)
}

// errSkipped is for a message that came too early: those before it were lost on
// the way, or are gone.
var errSkipped = errors.New("a message was passed over")

// read yields what one consumer has, until it is left or fails.
func (r *reader) read(ctx context.Context) (left bool, err error) {
	r.fresh = true
	messages, stop, err := r.b.consume(ctx, r.at.seq+1)
	if err != nil {
		return false, err
	}
	defer stop()
	there, err := r.b.still(ctx, r.at) // now that it cannot be another stream's
	if err == nil && !there {
		r.at.linked = false // if the whole chain expired, its next block names none before it
		err = r.b.since(ctx, r.at)
	}
	if err != nil {
		return false, err
	}
	l := &links{b: r.b, at: r.at, seen: r.at.seq}
	for due := uint64(0); ; {
		from := l.seen
		left, err := r.listen(ctx, messages, l)
		switch {
		case left || err != nil:
			return left, err
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

// listen yields what a consumer has for a while, then returns. A consumer that
// says nothing but that it is there may have nothing, or its last message was
// lost on the way, or its server lags: that is to be asked.
func (r *reader) listen(ctx context.Context, messages jetstream.MessagesContext, l *links) (left bool, err error) {
	listening, cancel := context.WithTimeout(ctx, look)
	defer cancel()
	for {
		m, err := messages.Next(jetstream.NextContext(listening))
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, fmt.Errorf("a message came that is none of the stream's: %w", err)
		}
		seq := meta.Sequence.Stream
		if seq <= l.seen { // a server that lags has the consumer begin at what it has
			continue
		}
		blocks, err := l.add(r.b.names.decode(seq, m.Subject(), m.Data()))
		if l.doubt && !l.settled {
			err = r.doubted(ctx, l, err)
		}
		switch {
		case errors.Is(err, errMissing) && r.fresh:
			return false, r.b.missing(ctx, r.at)
		case errors.Is(err, errMissing):
			return false, errSkipped
		case err != nil:
			return false, err
		case l.gap && l.held != nil: // unless messages were removed, some were lost on the way
			_, first, _, err := r.b.at(ctx, r.at.seq+1)
			if err != nil || first == r.at.seq+1 {
				return false, cmp.Or(err, errSkipped)
			}
		}
		for _, s := range blocks {
			r.fresh = false
			if !r.take(s) {
				return true, nil
			}
		}
	}
}

// doubted is for messages that name each other and not the newest block. It
// returns an error unless they are strays.
func (r *reader) doubted(ctx context.Context, l *links, doubt error) error {
	if errors.Is(doubt, errForked) {
		return r.b.doubted(ctx, l)
	}
	next, err := r.b.chain(ctx, &r.at, r.at.seq+1, noEnd, 1)
	switch {
	case err != nil:
		return err
	case len(next) == 0:
		return errSkipped
	}
	l.settled = true
	return nil
}

// take yields a block, and tells whether to go on.
func (r *reader) take(s stored) (more bool) {
	r.at = s.place()
	if s.block.Cursor <= r.cursor { // the cursor was past the newest block
		return true
	}
	r.cursor = s.block.Cursor
	r.b.marks.note(s)
	r.b.survey.next(&s)
	return r.yield(s.block, nil)
}

// consume makes a consumer. What is left of it when the line is dead the server
// drops by itself.
func (b *Backend) consume(ctx context.Context, from uint64) (jetstream.MessagesContext, func(), error) {
	var c jetstream.Consumer
	err := b.try(ctx, func(ctx context.Context) (err error) {
		c, err = b.js.CreateConsumer(ctx, b.names.stream, jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, AckPolicy: jetstream.AckNonePolicy,
			InactiveThreshold: abandoned, MemoryStorage: true, Replicas: 1,
		})
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	drop := func() { // without waiting for the answer
		_ = b.nc.Publish("$JS.API.CONSUMER.DELETE."+b.names.stream+"."+c.CachedInfo().Name, nil)
	}
	messages, err := c.Messages(jetstream.PullMaxMessagesWithBytesLimit(ahead, aheadBytes),
		jetstream.PullHeartbeat(heartbeat), jetstream.PullExpiry(abandoned),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		drop()
		return nil, nil, err
	}
	return messages, func() {
		messages.Stop()
		drop()
	}, nil
}

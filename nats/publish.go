package natschain

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// errElsewhere is for a message that the stream had already.
var errElsewhere = errors.New("a block was stored by somebody else")

// publish appends blocks behind the tail, each behind the one before it, and
// returns how many of them were. One that is refused has all that follow it
// refused, so there is never a hole: the place alone would not do, as another
// Writer's message may have taken it, with the next of ours under way.
func (w *Writer) publish(ctx context.Context, blocks []chaingql.Block) (int, error) {
	var (
		begin    = w.tail.seq
		prev     = w.tail.cursor
		messages = make([]*nats.Msg, len(blocks))
	)
	for i := range blocks {
		payload, err := encode(&blocks[i], prev)
		if err != nil {
			return 0, err
		}
		prev = &blocks[i].Cursor
		messages[i] = &nats.Msg{Subject: w.b.names.of(&blocks[i]), Data: payload, Header: nats.Header{
			jetstream.MsgIDHeader:           {messageID(&blocks[i])},
			jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(begin+uint64(i), 10)},
		}}
		if i > 0 {
			messages[i].Header.Set(jetstream.ExpectedLastMsgIDHeader, messageID(&blocks[i-1]))
		}
	}
	return w.send(ctx, messages, func(i int, ack *jetstream.PubAck) error {
		if ack.Sequence != begin+uint64(i)+1 {
			return errElsewhere
		}
		cursor := blocks[i].Cursor
		w.tail = &tail{seq: ack.Sequence, cursor: &cursor}
		w.b.marks.note(stored{seq: ack.Sequence, block: blocks[i]})
		return nil
	})
}

// messageID is the same for two blocks only where they are.
func messageID(b *chaingql.Block) string { return fmt.Sprintf("%s.%x", b.Cursor, b.Hash[:8]) }

// send publishes messages, some of them under way at once, and waits for each to
// be acknowledged. It returns how many were, from the first on.
func (w *Writer) send(ctx context.Context, messages []*nats.Msg, acked func(i int, ack *jetstream.PubAck) error) (int, error) {
	var underway []jetstream.PubAckFuture
	done := 0
	wait := func() error {
		ack, err := acknowledged(ctx, underway[0])
		if err == nil {
			err = acked(done, ack)
		}
		if err == nil {
			underway, done = underway[1:], done+1
		}
		return err
	}
	for _, m := range messages {
		if len(underway) == pending {
			if err := wait(); err != nil {
				return done, err
			}
		}
		f, err := w.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
		if err != nil {
			return done, err
		}
		underway = append(underway, f)
	}
	for len(underway) > 0 {
		if err := wait(); err != nil {
			return done, err
		}
	}
	return done, nil
}

// acknowledged waits for the server's word, for ackWait at most: it may be lost.
func acknowledged(ctx context.Context, f jetstream.PubAckFuture) (*jetstream.PubAck, error) {
	select {
	case ack := <-f.Ok():
		return ack, nil
	case err := <-f.Err():
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

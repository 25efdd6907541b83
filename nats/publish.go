package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// errTailMoved is returned if the stream does not end where the Writer expected.
var errTailMoved = errors.New("the stream does not end where this writer expected, " +
	"probably because another writer stored a block")

// errDuplicate is returned if the server takes a message for an earlier one with the same ID. If that one is not the
// block, for example because it was purged or is a stray, the message must be sent without an ID.
var errDuplicate = fmt.Errorf("the server has stored a message with the same ID: %w", errTailMoved)

// publish appends blocks from the beginning of blocks after w.tail and returns their
// number. If the stream allows batches and the server has room for one, publish sends one
// atomic batch, and otherwise one block.
//
// Only one request is in flight at a time. A message contains the expected sequence number
// of the message before it, but does not identify that message. If two requests were in
// flight, the second one could be stored after a block of another writer that received the
// sequence number of the first one.
//
// Messages never contain the expected ID of the message before them. A server compares that
// ID only when it commits a replicated message, and a mismatch stops the stream for good.
func (w *Writer) publish(ctx context.Context, blocks []chaingql.Block) (int, error) {
	n := min(len(blocks), 1)
	if w.batches {
		n = min(len(blocks), batchSize)
	}
	messages, err := w.messages(blocks[:n])
	if err != nil || n == 0 {
		return 0, err
	}
	last := w.tail.seq + uint64(n)
	if n == 1 {
		err = w.request(ctx, messages[0], last)
	} else {
		err = w.publishBatch(ctx, messages, last)
		if hasCode(err, tooManyBatches, batchIncomplete) { // NATS 2.12 reports too many batches as batchIncomplete
			return w.publish(ctx, blocks[:1])
		}
	}
	if err != nil {
		return 0, err
	}
	prev, epoch := w.tail.cursor, w.epochAfter(w.tail)
	for i := range blocks[:n] {
		s := stored{seq: w.tail.seq + uint64(i) + 1, prev: prev, epoch: epoch, block: blocks[i]}
		w.b.places.add(s)
		if i == 0 && (prev == nil || *prev == "") { // the stream contained no block
			w.b.survey.start(s)
		}
		w.b.survey.next(&s)
		w.indexer.appended(s)
		prev = &blocks[i].Cursor
	}
	w.tail = &tail{last, prev, epoch, time.Now()}
	return n, nil
}

// publishAfterStrays calls publish. If other programs have stored strays after w.tail, it moves w.tail and calls
// publish again at once, until w.tail is older than maxTailAge. Append would look up the end of the stream instead,
// with several requests, and more strays would arrive meanwhile.
func (w *Writer) publishAfterStrays(ctx context.Context, blocks []chaingql.Block) (n int, err error) {
	for {
		n, err = w.publish(ctx, blocks)
		if !hasCode(err, wrongLastSequence) || time.Since(w.tail.seen) > maxTailAge || !w.passStrays(ctx) {
			return n, err
		}
	}
}

// passStrays moves w.tail after the messages that follow it, and returns true if all of these are certainly strays.
func (w *Writer) passStrays(ctx context.Context) bool {
	if w.tail.cursor == nil {
		return false
	}
	messages, _, err := w.b.batch(ctx, w.b.names.all(), w.tail.seq+1, chaingql.MaxPage)
	if err != nil || len(messages) == 0 {
		return false
	}
	at := place{seq: w.tail.seq, cursor: *w.tail.cursor, epoch: w.tail.epoch, linked: true}
	l := linker{b: w.b, at: at, seen: w.tail.seq, ignoreForks: true}
	for _, s := range messages {
		blocks, err := l.add(s)
		if err != nil || len(blocks) > 0 || l.gap || l.orphan || l.forked {
			return false
		}
	}
	w.tail.seq = l.seen
	w.indexer.moved(l.seen)
	return true
}

// epochAfter returns the epoch that the messages of the blocks after t contain. It is that of the stream, unless the
// stream is a copy of a newer one.
func (w *Writer) epochAfter(t *tail) int64 {
	created, _ := strconv.ParseInt(*w.epoch, 10, 64)
	return max(created, t.epoch)
}

// messages encodes blocks that follow w.tail. The first message contains the sequence number
// of the tail, and the server rejects the message if the stream does not end there.
func (w *Writer) messages(blocks []chaingql.Block) ([]*nats.Msg, error) {
	messages, prev, epoch := make([]*nats.Msg, len(blocks)), w.tail.cursor, w.epochAfter(w.tail)
	for i := range blocks {
		payload, err := encode(&blocks[i], prev, epoch)
		if err != nil {
			return nil, err
		}
		prev = &blocks[i].Cursor
		messages[i] = &nats.Msg{Subject: w.b.names.blockSubject(&blocks[i]), Data: payload, Header: nats.Header{}}
		if !w.withoutID {
			messages[i].Header.Set(jetstream.MsgIDHeader, messageID(&blocks[i], epoch))
		}
	}
	if len(messages) > 0 {
		messages[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(w.tail.seq, 10))
	}
	return messages, nil
}

// publishBatch stores all messages or none. It sends the first message and waits for the
// response before it sends the others. A server that supports batches responds with an
// empty message. Any other server stores the first message at once.
func (w *Writer) publishBatch(ctx context.Context, messages []*nats.Msg, last uint64) error {
	id := nuid.Next()
	for i, m := range messages {
		m.Header.Set(batchID, id)
		m.Header.Set(batchSequence, strconv.Itoa(i+1))
	}
	if err := w.request(ctx, messages[0], staged); err != nil {
		if hasCode(err, batchesDisabled, batchTooLarge) {
			w.batches = false
			return errTailMoved
		}
		return err
	}
	for _, m := range messages[1 : len(messages)-1] {
		if err := w.b.nc.PublishMsg(m); err != nil {
			return err
		}
	}
	commit := messages[len(messages)-1]
	commit.Header.Set(batchCommit, "1")
	err := w.request(ctx, commit, last)
	if hasCode(err, batchTooLarge) {
		w.batches = false
		return errTailMoved
	}
	return err
}

const (
	maxPending = 512             // maximum number of messages in flight per call
	ackWait    = 2 * time.Second // maximum wait for an acknowledgement

	batchSize = 512 // maximum number of messages in a batch; the default limit of servers is 1,000
	staged    = 0   // passed to request instead of a sequence number for the first message of a batch

	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// request sends a message and returns nil if the server stored it with the sequence number
// seq. It waits at most ackWait, because the response may be lost.
func (w *Writer) request(ctx context.Context, m *nats.Msg, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	answer, err := w.b.nc.RequestMsgWithContext(ctx, m)
	if err != nil {
		return err
	}
	if len(answer.Data) == 0 && seq == staged {
		return nil
	}
	var ack struct {
		Error     *jetstream.APIError `json:"error"`
		Stream    string              `json:"stream"`
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return fmt.Errorf("malformed acknowledgement: %w", err)
	}
	switch {
	case ack.Error != nil:
		return ack.Error
	case ack.Stream != w.b.names.stream:
		return fmt.Errorf("the block was stored in the stream %q, which has its subject", ack.Stream)
	case seq == staged: // stored by a server that does not support batches
		w.batches = false
		return errTailMoved
	case ack.Duplicate:
		return errDuplicate
	case ack.Sequence != seq:
		return errTailMoved
	}
	return nil
}

// messageID returns the message ID by which the server recognizes duplicates. Different blocks have different IDs. The
// ID contains the epoch of the message: a message for an earlier stream, which is a stray, would otherwise make the
// server reject the same block until it forgets the stray's ID.
func messageID(b *chaingql.Block, epoch int64) string {
	return fmt.Sprintf("%s.%x.%d", b.Cursor, b.Hash[:8], epoch)
}

// send publishes messages, with at most maxPending in flight, and waits for all
// acknowledgements. It calls acked for each of them. It returns the number of messages at
// the beginning of messages that were acknowledged.
func (w *Writer) send(ctx context.Context, messages []*nats.Msg,
	acked func(i int, ack *jetstream.PubAck) error) (int, error) {
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
		if len(underway) == maxPending {
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

// acknowledged waits for an acknowledgement. The JetStream client makes the wait fail after
// ackWait.
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

// checkWrite sends a message that the stream must reject. The error in the response shows whether
// the Backend has permission to publish to subject, and whether the stream has this subject.
func (b *Backend) checkWrite(ctx context.Context, stream, subject string) error {
	var ack struct {
		Error  *jetstream.APIError `json:"error"`
		Stream string              `json:"stream"`
	}
	since := b.nc.LastError()
	err := b.retry(ctx, func(ctx context.Context) error {
		answer, err := b.nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject,
			Header: nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(maxSeq-1, 10)}}})
		if err == nil {
			err = json.Unmarshal(answer.Data, &ack)
		}
		if err == nil && ack.Error != nil {
			err = ack.Error
		}
		return err
	})
	switch {
	case hasCode(err, wrongLastSequence) && (ack.Stream == stream || ack.Stream == ""):
		return nil
	case hasCode(err, wrongLastSequence):
		return fmt.Errorf("natschain: messages with the subject %s are stored in the stream %q, not in %q", subject,
			ack.Stream, stream)
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("natschain: no stream accepts messages with the subject %s", subject)
	case err == nil:
		err = errors.New("the stream stored a message with a wrong expected sequence number")
	}
	return failed("cannot write to "+subject, b.permissionError(since, err))
}

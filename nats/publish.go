package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// errElsewhere is for a message that the stream had already.
var errElsewhere = errors.New("a block was stored by somebody else")

// publish appends the first of the blocks after the tail, and returns how many of
// them were stored: as many as one atomic batch may have, if the stream allows
// batches, and else one. Only one proposal is on its way at a time: the place that
// a message expects does not tell whose message is before it, so a second one
// could be stored after a foreign block that took the place of the first.
//
// A message never names the one before it by id: servers compare that id only
// when a replicated message is committed, and a mismatch stops the stream for good.
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
	}
	if err != nil {
		return 0, err
	}
	prev := w.tail.cursor
	for i := range blocks[:n] {
		s := stored{seq: w.tail.seq + uint64(i) + 1, prev: prev, block: blocks[i]}
		w.b.marks.note(s)
		if i == 0 && (prev == nil || *prev == "") { // the stream had no block
			w.b.survey.begin(s)
		}
		w.b.survey.next(&s)
		w.indexer.appended(s)
		prev = &blocks[i].Cursor
	}
	w.tail = &tail{seq: last, cursor: prev}
	return n, nil
}

// messages returns the messages of blocks that follow the tail. The first expects
// to be the next of the stream.
func (w *Writer) messages(blocks []chaingql.Block) ([]*nats.Msg, error) {
	messages, prev := make([]*nats.Msg, len(blocks)), w.tail.cursor
	for i := range blocks {
		payload, err := encode(&blocks[i], prev)
		if err != nil {
			return nil, err
		}
		prev = &blocks[i].Cursor
		messages[i] = &nats.Msg{Subject: w.b.names.of(&blocks[i]), Data: payload, Header: nats.Header{
			jetstream.MsgIDHeader: {messageID(&blocks[i])},
		}}
	}
	if len(messages) > 0 {
		messages[0].Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(w.tail.seq, 10))
	}
	return messages, nil
}

// publishBatch stores all messages or none. It sends the first alone: a server
// that knows batches keeps it for later and answers with nothing, any other would
// store each message as it comes.
func (w *Writer) publishBatch(ctx context.Context, messages []*nats.Msg, last uint64) error {
	id := nuid.Next()
	for i, m := range messages {
		m.Header.Set(batchID, id)
		m.Header.Set(batchSequence, strconv.Itoa(i+1))
	}
	if err := w.request(ctx, messages[0], staged); err != nil {
		if refused(err, batchesDisabled, batchTooLarge) {
			w.batches = false
			return errElsewhere
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
	if refused(err, batchTooLarge) {
		w.batches = false
		return errElsewhere
	}
	return err
}

const (
	batchSize = 512 // messages of a batch; servers take up to 1,000 unless told otherwise
	staged    = 0   // the number of a message that waits for the rest of its batch

	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// request sends a message, and returns nil if it was stored under a number. The
// answer may be lost, so it waits for ackWait at most.
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
		Sequence  uint64              `json:"seq"`
		Duplicate bool                `json:"duplicate"`
	}
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return fmt.Errorf("the server's acknowledgement is malformed: %w", err)
	}
	switch {
	case ack.Error != nil:
		return ack.Error
	case seq == staged: // stored by a server that does not know batches
		w.batches = false
		return errElsewhere
	case ack.Duplicate || ack.Sequence != seq:
		return errElsewhere
	}
	return nil
}

// messageID is the same for two blocks only where they are.
func messageID(b *chaingql.Block) string { return fmt.Sprintf("%s.%x", b.Cursor, b.Hash[:8]) }

// send publishes messages, some of them under way at once, and waits for each to
// be acknowledged. It returns how many were, from the first on.
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

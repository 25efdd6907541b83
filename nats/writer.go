package natschain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrConflict is returned by [Writer.Append] if the chain contains a different block
// with the same cursor, or lacks the block but contains newer ones: readers that are
// already after its cursor would never receive it.
//
// It is also returned if the chain lost blocks that this Writer saw stored, for example
// because servers lost power or the stream was created again, and the new blocks would
// leave a gap. Append from the chain's newest block on. If the chain is empty now, the
// Writer accepts only the block with which it began the chain; to begin with another
// block, use a new Writer.
var ErrConflict = errors.New("conflict with stored blocks")

// A Writer writes the blocks and balances of a chain. [Backend.Writer] returns one. Its
// methods may be called concurrently. Any number of Writers in any number of processes
// may write to one chain: each message states which one it follows, so blocks are
// appended in cursor order or not at all.
type Writer struct {
	b          *Backend
	js         jetstream.JetStream
	sem        chan struct{}     // held by the running Append; guards the fields below
	tail       *tail             // end of the stream, nil if it must be looked up
	newestSeen chaingql.Cursor   // newest block that was seen stored
	ownRun     []chaingql.Cursor // newest blocks that this Writer stored, and the one before them

	indexing bool // the index exists and this Writer may write to it
	indexer  indexer

	batches bool          // the stream allows atomic batches
	catchUp time.Duration // how long a new leader may lack the block newestSeen
}

// A tail is the end of a stream.
type tail struct {
	seq    uint64
	cursor *chaingql.Cursor // of the newest block, nil if that was removed
}

// Writer returns a Writer of the Backend's chain. It returns an error if the permission
// to write is missing or no stream accepts the messages. The Writer uses the Backend's
// connection, which [Backend.Close] closes.
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(4*maxPending),
		jetstream.WithPublishAsyncTimeout(ackWait))
	if err != nil {
		return nil, failed("open a writer", err)
	}
	block, balance := b.names.blockSubject(&chaingql.Block{}), b.names.balanceSubject(&chaingql.Address{})
	for _, subject := range []string{block, balance} {
		if err := b.checkWrite(ctx, subject); err != nil {
			return nil, err
		}
	}
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return nil, failed("open a writer", err)
	}
	w := &Writer{b: b, js: js, sem: make(chan struct{}, 1), catchUp: b.opts.Timeout,
		batches: info.Config.AllowAtomicPublish}
	w.indexing = b.openIndex(ctx)
	if !w.batches {
		b.opts.Logger.WarnContext(ctx, "stream allows no atomic batches: blocks are appended one by one", "stream",
			b.names.stream)
	}
	return w, nil
}

// checkWrite sends a message that the stream must reject, to find missing permissions.
func (b *Backend) checkWrite(ctx context.Context, subject string) error {
	err := b.retry(ctx, func(ctx context.Context) error {
		m := &nats.Msg{Subject: subject,
			Header: nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(maxSeq-1, 10)}}}
		_, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		return err
	})
	switch {
	case hasCode(err, wrongLastSequence):
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("natschain: no stream accepts messages to %s", subject)
	case err == nil:
		err = errors.New("a message with a wrong expected sequence number was stored")
	}
	return failed("cannot write to "+subject, b.permissionError(err))
}

// Append appends blocks. Their cursors must ascend and be higher than all cursors that
// the chain ever had. Blocks that are already stored and equal are skipped, and so are
// pruned ones, so an indexer may repeat blocks. Append returns [ErrConflict] for a block
// that differs from the stored one. It also rejects a block if the number at the
// beginning of its cursor exceeds the previous one by more than 16,777,216 and by more
// than a sixteenth.
//
// If a block is not acknowledged, Append checks whether it was stored and sends it
// again, until WriteTimeout ends. After an error, the first of the blocks may be stored:
// call Append again with all of them.
//
// Many blocks in one call are faster: up to 512 are stored as one atomic batch, if the
// stream allows that; see [Storage]. After every 256 blocks, and if the index lags,
// Append also extends the index. Errors of that are only logged.
func (w *Writer) Append(ctx context.Context, blocks ...chaingql.Block) error {
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("natschain: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor,
				chaingql.ErrBadCursor)
		}
		if i > 0 && b.Cursor <= blocks[i-1].Cursor {
			return fmt.Errorf("natschain: block %d of %d has cursor %q, which is not after %q", i+1, len(blocks), b.Cursor,
				blocks[i-1].Cursor)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	select {
	case w.sem <- struct{}{}:
		defer func() { <-w.sem }()
	case <-ctx.Done():
		return failed("append", ctx.Err())
	}
	for len(blocks) > 0 {
		n, err := w.countStored(ctx, blocks)
		if err == nil {
			if n > 0 && n < len(blocks) && blocks[n-1].Cursor < w.newestSeen {
				// the end of the chain was lost and is appended again
				w.ownRun = append(w.ownRunBefore(blocks[n-1].Cursor), blocks[n-1].Cursor, blocks[n].Cursor)
			} else if n > 0 {
				w.newestSeen = max(w.newestSeen, blocks[n-1].Cursor)
			}
			blocks = blocks[n:]
			if err := w.checkDistance(blocks); err != nil {
				return err
			}
			before := w.tail.cursor
			n, err = w.publish(ctx, blocks)
			w.remember(before, blocks[:n])
			blocks = blocks[n:]
			if err == nil {
				w.index(ctx, n)
			}
		}
		if err != nil {
			w.tail = nil
			if !errors.Is(err, errTailMoved) && !hasCode(err, wrongLastSequence, sequenceUnderway, batchHasDuplicate) &&
				!w.b.retryable(err) || ctx.Err() != nil {
				return failed("append", err)
			}
			pause(ctx, pauseBetween)
		}
	}
	return nil
}

// checkDistance rejects cursors so far above their predecessor that readers would treat
// the block as a stray message.
func (w *Writer) checkDistance(blocks []chaingql.Block) error {
	for i, b := range blocks {
		before := w.tail.cursor
		if i > 0 {
			before = &blocks[i-1].Cursor
		}
		if before != nil && tooFar(*before, b.Cursor) {
			return fmt.Errorf("natschain: cursor %q is too far above its predecessor %q", b.Cursor, *before)
		}
	}
	return nil
}

// countStored returns how many of the first blocks are already stored and equal.
func (w *Writer) countStored(ctx context.Context, blocks []chaingql.Block) (int, error) {
	looked := w.tail == nil
	for begun := time.Now(); w.tail == nil; {
		w.indexer.restart()
		last, err := w.b.lastSeq(ctx) // that message may have been removed
		if err != nil {
			return 0, err
		}
		newest, found, end, err := w.b.tail(ctx)
		end = max(end, last)
		switch {
		case err != nil:
			return 0, err
		case !found && end > 0:
			w.tail = &tail{seq: end}
		case w.continues(newest.block.Cursor, blocks):
			w.tail = &tail{seq: end, cursor: &newest.block.Cursor}
		case time.Since(begun) > w.catchUp:
			return 0, w.lostError(newest.block.Cursor)
		default: // a new leader may still have to catch up
			pause(ctx, pauseBetween)
		}
	}
	if w.tail.cursor == nil { // all blocks were removed
		return upTo(blocks, w.newestSeen), nil
	}
	if !w.continues(*w.tail.cursor, blocks) { // a call whose blocks were all stored may have set any tail
		return 0, w.lostError(*w.tail.cursor)
	}
	n := upTo(blocks, *w.tail.cursor)
	there, err := w.compare(ctx, blocks[:n])
	if err == nil && !there && !looked {
		err = errTailMoved // the stream has lost them since: look up its end
	}
	return n, err
}

func (w *Writer) lostError(newest chaingql.Cursor) error {
	return fmt.Errorf("the chain ends at cursor %q, but had %q: %w", newest, w.newestSeen, ErrConflict)
}

// continues reports whether the blocks follow the newest one without a gap. They may not
// if the chain lost stored blocks.
func (w *Writer) continues(newest chaingql.Cursor, blocks []chaingql.Block) bool {
	if newest >= w.newestSeen {
		return true
	}
	if n := upTo(blocks, newest); n > 0 {
		return n == len(blocks) || blocks[n-1].Cursor == newest
	}
	i := slices.Index(w.ownRun, newest)
	return i >= 0 && i+1 < len(w.ownRun) && w.ownRun[i+1] == blocks[0].Cursor
}

// remember records blocks that this Writer stored, and the cursor before them.
func (w *Writer) remember(before *chaingql.Cursor, blocks []chaingql.Block) {
	if len(blocks) == 0 {
		return
	}
	if before != nil {
		w.ownRun = append(w.ownRunBefore(*before), *before)
	}
	for _, b := range blocks {
		w.newestSeen, w.ownRun = b.Cursor, append(w.ownRun, b.Cursor)
	}
	if n := len(w.ownRun); n > 2*maxPlaces {
		w.ownRun = slices.Delete(w.ownRun, 0, n-maxPlaces)
	}
}

// ownRunBefore returns the cursors before c in ownRun, none if it does not contain c.
func (w *Writer) ownRunBefore(c chaingql.Cursor) []chaingql.Cursor {
	return w.ownRun[:max(0, slices.Index(w.ownRun, c))]
}

// upTo returns the number of blocks up to and including a cursor.
func upTo(blocks []chaingql.Block, c chaingql.Cursor) int {
	n, found := slices.BinarySearchFunc(blocks, c, func(b chaingql.Block, c chaingql.Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
	if found {
		n++
	}
	return n
}

// compare returns an error if the stream contains other blocks. It returns false if the
// stream ends before them.
func (w *Writer) compare(ctx context.Context, blocks []chaingql.Block) (there bool, err error) {
	if len(blocks) == 0 {
		return true, nil
	}
	at, err := w.b.search(ctx, blocks[0].Cursor)
	if err != nil {
		return false, err
	}
	var before *place
	for from := at.end(blocks[0].Cursor); len(blocks) > 0; {
		context := min(from-1, window) // needed to recognize which messages are blocks
		if before != nil {
			context = 0
		}
		page, err := w.b.chain(ctx, before, from-context, maxSeq, min(len(blocks), chaingql.MaxPage)+int(context))
		if err != nil {
			return false, err
		}
		page = slices.DeleteFunc(page, func(s stored) bool { return s.seq < from })
		if len(page) > 0 && (at.tooOld || page[0].seq > from) { // the blocks before were removed
			n := upTo(blocks, page[0].block.Cursor)
			if n > 0 && blocks[n-1].Cursor == page[0].block.Cursor {
				n--
			}
			if page[0].prev != nil {
				n = upTo(blocks, *page[0].prev)
			}
			blocks, at.tooOld = blocks[n:], false
		}
		for _, s := range page[:min(len(page), len(blocks))] {
			b := blocks[0]
			if b.Cursor != s.block.Cursor {
				return false, fmt.Errorf("cursor %q is not stored, but newer ones are: %w", b.Cursor, ErrConflict)
			}
			at := b.Time
			b.Time = s.block.Time
			if b != s.block || !at.Equal(s.block.Time) {
				return false, fmt.Errorf("cursor %q has block %v, not %v: %w", b.Cursor, s.block.Hash, b.Hash,
					ErrConflict)
			}
			p := s.place()
			blocks, from, before = blocks[1:], s.seq+1, &p
		}
		if len(page) == 0 {
			break
		}
	}
	return len(blocks) == 0, nil
}

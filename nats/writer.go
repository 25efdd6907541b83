package natschain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrConflict is returned by [Writer.Append] if a block does not fit the stored chain:
// either the chain contains a different block with the same cursor, or it contains newer
// blocks but not this one. Such a block is not stored, because readers that have already
// passed its cursor would never receive it.
//
// ErrConflict is also returned if the chain lost blocks that this Writer has seen in it,
// and the new blocks would therefore leave a gap. This happens, for example, after servers
// lost power or a backup was restored. In that case, append all blocks after the chain's
// newest block. If the chain is empty, the Writer accepts only the block with which it
// began the chain. To begin with another block, use a new Writer.
var ErrConflict = errors.New("conflict with stored blocks")

// A Writer writes the blocks and balances of a chain. [Backend.Writer] returns a Writer.
// Its methods may be called concurrently. Any number of Writers in any number of processes
// may write to one chain. Each message contains the sequence number of the message that it
// must follow, so a block is stored in cursor order or not at all.
//
// A Writer belongs to the block stream for which it was created. If that stream is deleted
// and created again, all calls return an error that wraps [chaingql.ErrChainReplaced].
type Writer struct {
	b          *Backend
	epoch      *string // of the stream for which the Writer was created
	js         jetstream.JetStream
	sem        chan struct{}     // held by the running Append; guards the fields below
	tail       *tail             // end of the stream, nil if it must be looked up
	newestSeen chaingql.Cursor   // cursor of the newest block that this Writer has seen in the stream
	ownRun     []chaingql.Cursor // newest blocks that this Writer stored, and the block before them

	unacked unackedIDs

	indexing bool // whether the index exists and this Writer may write to it
	indexer  indexer

	batches   bool          // whether the stream allows atomic batches
	withoutID bool          // whether to send the next messages without an ID; see errDuplicate
	catchUp   time.Duration // how long a new leader may lack the block newestSeen
}

// A tail describes the end of a stream.
type tail struct {
	seq    uint64           // sequence number of the newest message
	cursor *chaingql.Cursor // cursor of the newest block, nil if that block was removed
	epoch  int64            // epoch that the message of that block contains, 0 if unknown
	seen   time.Time        // when the stream ended with that message
}

// maxTailAge is the time after which Append verifies that the stream still ends with the block at the tail. Another
// block may have its sequence number if the stream was restored from a backup and another Writer has appended to it.
const maxTailAge = time.Second

// Writer returns a Writer for the Backend's chain. It returns an error if the permission
// to write is missing or if no stream accepts the messages. The Writer uses the Backend's
// connection, which [Backend.Close] closes.
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(4*maxPending),
		jetstream.WithPublishAsyncTimeout(ackWait))
	if err != nil {
		return nil, failed("open a writer", err)
	}
	err = b.checkWrite(ctx, b.names.stream, b.names.blockSubject(&chaingql.Block{}))
	if err == nil {
		err = b.checkWrite(ctx, b.names.balances, b.names.balanceSubject(&chaingql.Address{}))
	}
	if err != nil {
		return nil, err
	}
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return nil, failed("open a writer", err)
	}
	if err := b.checkEpoch(ctx, b.epoch.Load()); err != nil && !errors.Is(err, errNewStream) {
		return nil, err
	}
	w := &Writer{b: b, epoch: b.epoch.Load(), js: js, sem: make(chan struct{}, 1), catchUp: b.opts.Timeout,
		batches: info.Config.AllowAtomicPublish}
	w.indexing = b.openIndex(ctx)
	if !w.batches {
		b.opts.Logger.WarnContext(ctx, "the stream does not allow atomic batches: blocks are appended one by one",
			slog.String("stream", b.names.stream))
	}
	return w, nil
}

// Append appends blocks in ascending order of their cursors. The cursor of a new block must
// be higher than the cursors of all blocks that the chain ever contained. An indexer may
// repeat blocks: Append skips blocks that are stored already or were pruned. Append returns
// [ErrConflict] if the chain contains a different block with the same cursor.
//
// Append rejects a block whose cursor is implausibly high. This is the case if the number
// at the beginning of the cursor exceeds that of the previous block by more than 16,777,216
// and by more than a sixteenth.
//
// If the server does not acknowledge a block, Append checks whether the block was stored,
// and sends it again if not, until Options.WriteTimeout has passed. After an error, some of
// the first blocks may be stored. Then call Append again with all of the blocks.
//
// One call with many blocks is faster than many calls: if the stream allows atomic batches
// (see [Storage]), Append stores up to 512 blocks as one batch. After every 256 blocks,
// Append also extends the block index. Errors of the index are only logged.
func (w *Writer) Append(ctx context.Context, blocks ...chaingql.Block) error {
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("natschain: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor,
				chaingql.ErrBadCursor)
		}
		if i > 0 && b.Cursor <= blocks[i-1].Cursor {
			return fmt.Errorf("natschain: block %d of %d has cursor %q, which is not after the previous cursor %q", i+1,
				len(blocks), b.Cursor, blocks[i-1].Cursor)
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
	since := w.b.nc.LastError()
	for len(blocks) > 0 {
		n, err := w.countStored(ctx, blocks)
		if err == nil || !w.b.retryable(err) { // the blocks may have been compared with those of a new stream
			err = cmp.Or(w.b.checkEpoch(ctx, w.epoch), err)
		}
		if err == nil {
			if n > 0 && n < len(blocks) && blocks[n-1].Cursor < w.newestSeen {
				// the newest blocks were lost and are appended again
				w.ownRun = append(w.ownRunBefore(blocks[n-1].Cursor), blocks[n-1].Cursor, blocks[n].Cursor)
			} else if n > 0 {
				w.newestSeen = max(w.newestSeen, blocks[n-1].Cursor)
			}
			blocks = blocks[n:]
			if err := w.checkDistance(blocks); err != nil {
				return err
			}
			before := w.tail.cursor
			n, err = w.publishAfterStrays(ctx, blocks)
			w.remember(before, blocks[:n])
			blocks = blocks[n:]
			if err == nil {
				w.index(ctx, n)
			}
		}
		w.withoutID = errors.Is(err, errDuplicate) || hasCode(err, batchHasDuplicate)
		if err != nil {
			w.tail = nil
			if !errors.Is(err, errTailMoved) && !hasCode(err, wrongLastSequence, sequenceUnderway, batchHasDuplicate) &&
				!w.b.retryable(err) || ctx.Err() != nil {
				return failed("append", w.b.permissionError(since, err))
			}
			pause(ctx, pauseBetween)
		}
	}
	return nil
}

// checkDistance returns an error if the cursor of a block is so far above the previous cursor
// that readers would treat the block as a stray message.
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

// countStored returns how many blocks at the beginning of blocks are already stored. It
// returns ErrConflict if a stored block is different, or if the remaining blocks would leave
// a gap in the chain.
func (w *Writer) countStored(ctx context.Context, blocks []chaingql.Block) (int, error) {
	if w.tail != nil && time.Since(w.tail.seen) > maxTailAge {
		newest, found, _, err := w.b.tail(ctx)
		switch {
		case err != nil:
			return 0, err
		case !found || w.tail.cursor == nil || newest.block.Cursor != *w.tail.cursor:
			w.tail = nil // the stream was restored from a backup, or another Writer has appended blocks
		default:
			w.tail.seen = time.Now()
			w.indexer.recent = nil // the stream may have been restored from a backup and end with the same block
		}
	}
	looked := w.tail == nil
	for begun := time.Now(); w.tail == nil; {
		whole, err := w.b.rangeOfStream(ctx, w.epoch) // the newest message may have been removed
		if err != nil {
			return 0, err
		}
		newest, found, end, err := w.b.tail(ctx)
		end = max(end, whole.end-1)
		if err == nil {
			w.indexer.moved(end)
		}
		switch {
		case err != nil:
			return 0, err
		case !found && end > 0:
			w.tail = &tail{seq: end, seen: time.Now()}
		case w.continues(newest.block.Cursor, blocks):
			w.tail = &tail{end, &newest.block.Cursor, newest.epoch, time.Now()}
		case time.Since(begun) > w.catchUp:
			return 0, w.lostError(newest.block.Cursor)
		default: // a new leader may still have to catch up
			pause(ctx, pauseBetween)
		}
	}
	if w.tail.cursor == nil { // all blocks were removed
		return upTo(blocks, w.newestSeen), nil
	}
	if !w.continues(*w.tail.cursor, blocks) { // an earlier call with only stored blocks may have set the tail
		return 0, w.lostError(*w.tail.cursor)
	}
	n := upTo(blocks, *w.tail.cursor)
	there, err := w.compare(ctx, blocks[:n])
	if err == nil && !there && !looked {
		err = errTailMoved // the stream lost the blocks since then: look up its end
	}
	return n, err
}

func (w *Writer) lostError(newest chaingql.Cursor) error {
	return fmt.Errorf("the chain ends at cursor %q, but previously contained cursor %q: %w", newest, w.newestSeen,
		ErrConflict)
}

// continues reports whether blocks continue the chain, which ends at the cursor newest,
// without a gap. There may be a gap if the chain lost stored blocks.
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

// remember records the cursors of blocks that this Writer stored, and the cursor before them.
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

// ownRunBefore returns the cursors before c in ownRun, and none if ownRun does not contain c.
func (w *Writer) ownRunBefore(c chaingql.Cursor) []chaingql.Cursor {
	return w.ownRun[:max(0, slices.Index(w.ownRun, c))]
}

// upTo returns the number of blocks whose cursors are not after c. The blocks must be in
// cursor order.
func upTo(blocks []chaingql.Block, c chaingql.Cursor) int {
	n, found := slices.BinarySearchFunc(blocks, c, func(b chaingql.Block, c chaingql.Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
	if found {
		n++
	}
	return n
}

// compare checks that the stream contains the given blocks. It returns an error if the stream
// contains a different block in place of one of them. It returns false if the stream ends
// before the last one.
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
		if len(page) > 0 && (at.tooOld || page[0].seq > from) { // the blocks before page were removed
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
				return false, fmt.Errorf("the block with cursor %q is not stored, but newer ones are: %w", b.Cursor,
					ErrConflict)
			}
			at := b.Time
			b.Time = s.block.Time
			if b != s.block || !at.Equal(s.block.Time) {
				return false, fmt.Errorf("the stored block with cursor %q is different (hash %v, new hash %v): %w",
					b.Cursor, s.block.Hash, b.Hash, ErrConflict)
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

package natschain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

// ErrConflict is returned by [Writer.Append] where the chain holds a different
// block under a cursor, or newer blocks and none under it: a block that appears
// below a cursor which was already read would never be seen. It is also returned if
// the chain lost blocks that this Writer saw stored (servers that lost power, a
// stream that was made again), and the blocks begin after its newest one, unless
// this Writer stored the first of them directly after that one: append from its
// newest block on. A chain that is empty now takes only what this Writer began it
// with; make another Writer to begin it with other blocks.
var ErrConflict = errors.New("it conflicts with what is stored")

// A Writer fills a chain. Get one from [Backend.Writer]; its methods may be
// called concurrently, and any number of Writers in any number of processes may
// write to one chain: each message says behind which one it belongs, so blocks
// are appended in cursor order or not at all.
type Writer struct {
	b    *Backend
	js   jetstream.JetStream
	turn chan struct{}     // held by the one that appends
	tail *tail             // of the stream, nil where it has to be looked up; its holder's
	had  chaingql.Cursor   // of the newest block that was seen stored; its holder's
	own  []chaingql.Cursor // of the newest blocks it stored, and the one before them; its holder's

	indexing bool // the chain has an index
	indexer  indexer

	batches bool          // the stream takes atomic batches; its holder's
	catchUp time.Duration // that a new leader is given to have that block, too
}

// A tail is where a stream ends.
type tail struct {
	seq    uint64
	cursor *chaingql.Cursor // nil where the newest block is gone
}

// Writer returns a Writer of the Backend's chain, or an error where it may not
// write, or the stream cannot be written to. It uses the Backend's connection and
// ends with its Close.
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	js, err := jetstream.New(b.nc, jetstream.WithPublishAsyncMaxPending(4*pending),
		jetstream.WithPublishAsyncTimeout(ackWait))
	if err != nil {
		return nil, failed("open a writer", err)
	}
	for _, subject := range []string{b.names.of(&chaingql.Block{}), b.names.value(&chaingql.Address{})} {
		if err := b.mayWrite(ctx, subject); err != nil {
			return nil, err
		}
	}
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return nil, failed("open a writer", err)
	}
	w := &Writer{b: b, js: js, turn: make(chan struct{}, 1), catchUp: b.opts.Timeout,
		batches: info.Config.AllowAtomicPublish}
	w.indexing = b.openIndex(ctx)
	if !w.batches {
		b.opts.Logger.WarnContext(ctx, "stream takes no atomic batches: blocks are appended one by one", "stream",
			b.names.stream)
	}
	return w, nil
}

// mayWrite sends a message that the stream is bound to refuse.
func (b *Backend) mayWrite(ctx context.Context, subject string) error {
	err := b.try(ctx, func(ctx context.Context) error {
		m := &nats.Msg{Subject: subject,
			Header: nats.Header{jetstream.ExpectedLastSeqHeader: {strconv.FormatUint(noEnd-1, 10)}}}
		_, err := b.js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
		return err
	})
	switch {
	case refused(err, wrongLastSequence):
		return nil
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("natschain: no stream takes messages to %s", subject)
	case err == nil:
		err = errors.New("a message was taken that says it belongs elsewhere")
	}
	return failed("may not write to "+subject, b.denied(err))
}

// Append appends blocks. They must ascend by cursor, and past every block that
// the chain ever had, with one exception that lets an indexer go on where it does
// not know how far it came: blocks that are stored already, and equal, are passed
// over, as are those that were pruned. [ErrConflict] is for one that differs. A
// block whose cursor begins with a number that is higher than the one before by
// more than 16,777,216 and by more than a sixteenth is refused. On
// error the first of the blocks may be stored: Append again. What was not
// acknowledged is looked up and sent again until it is, or WriteTimeout ends.
// Many blocks at once are faster: up to 512 are stored as one atomic batch, if
// the stream allows that; see [Storage]. After each 256 blocks, and if the index
// lags, Append also extends the index; an error of that is only logged.
func (w *Writer) Append(ctx context.Context, blocks ...chaingql.Block) error {
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("natschain: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor,
				chaingql.ErrBadCursor)
		}
		if i > 0 && b.Cursor <= blocks[i-1].Cursor {
			return fmt.Errorf("natschain: block %d of %d has cursor %q, which is not past %q", i+1, len(blocks), b.Cursor,
				blocks[i-1].Cursor)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return failed("append", ctx.Err())
	}
	for len(blocks) > 0 {
		n, err := w.known(ctx, blocks)
		if err == nil {
			if n > 0 && n < len(blocks) && blocks[n-1].Cursor < w.had { // its end was lost, and comes again
				w.own = append(w.upToOwn(blocks[n-1].Cursor), blocks[n-1].Cursor, blocks[n].Cursor)
			} else if n > 0 {
				w.had = max(w.had, blocks[n-1].Cursor)
			}
			blocks = blocks[n:]
			if err := w.near(blocks); err != nil {
				return err
			}
			before := w.tail.cursor
			n, err = w.publish(ctx, blocks)
			w.note(before, blocks[:n])
			blocks = blocks[n:]
			if err == nil {
				w.index(ctx, n)
			}
		}
		if err != nil {
			w.tail = nil
			if !errors.Is(err, errElsewhere) && !refused(err, wrongLastSequence, sequenceUnderway, batchHasDuplicate) &&
				!w.b.passing(err) || ctx.Err() != nil {
				return failed("append", err)
			}
			pause(ctx, pauseBetween)
		}
	}
	return nil
}

// near refuses blocks that readers would not believe, so far is one from the one
// before it.
func (w *Writer) near(blocks []chaingql.Block) error {
	for i, b := range blocks {
		before := w.tail.cursor
		if i > 0 {
			before = &blocks[i-1].Cursor
		}
		if before != nil && far(*before, b.Cursor) {
			return fmt.Errorf("natschain: cursor %q is too far above %q, the one before it", b.Cursor, *before)
		}
	}
	return nil
}

// known is how many of the blocks are stored already, as they are.
func (w *Writer) known(ctx context.Context, blocks []chaingql.Block) (int, error) {
	for begun := time.Now(); w.tail == nil; {
		w.indexer.restart()
		last, err := w.b.lastSeq(ctx) // its message may have been removed
		if err != nil {
			return 0, err
		}
		newest, some, end, err := w.b.tail(ctx)
		end = max(end, last)
		switch {
		case err != nil:
			return 0, err
		case !some && end > 0:
			w.tail = &tail{seq: end}
		case w.continues(newest.block.Cursor, blocks):
			w.tail = &tail{seq: end, cursor: &newest.block.Cursor}
		case time.Since(begun) > w.catchUp:
			return 0, w.lost(newest.block.Cursor)
		default: // a new leader may have yet to catch up
			pause(ctx, pauseBetween)
		}
	}
	if w.tail.cursor == nil { // the stream has forgotten where it was
		return upTo(blocks, w.had), nil
	}
	if !w.continues(*w.tail.cursor, blocks) { // after blocks that are all stored, which may be any
		return 0, w.lost(*w.tail.cursor)
	}
	n := upTo(blocks, *w.tail.cursor)
	return n, w.compare(ctx, blocks[:n])
}

func (w *Writer) lost(newest chaingql.Cursor) error {
	return fmt.Errorf("the chain ends at cursor %q, and had %q: %w", newest, w.had, ErrConflict)
}

// continues reports whether blocks leave no hole after the newest one. They may if
// the chain lost some that were stored.
func (w *Writer) continues(newest chaingql.Cursor, blocks []chaingql.Block) bool {
	if newest >= w.had {
		return true
	}
	if n := upTo(blocks, newest); n > 0 {
		return n == len(blocks) || blocks[n-1].Cursor == newest
	}
	i := slices.Index(w.own, newest)
	return i >= 0 && i+1 < len(w.own) && w.own[i+1] == blocks[0].Cursor
}

// note remembers blocks that it stored after another.
func (w *Writer) note(before *chaingql.Cursor, blocks []chaingql.Block) {
	if len(blocks) == 0 {
		return
	}
	if before != nil {
		w.own = append(w.upToOwn(*before), *before)
	}
	for _, b := range blocks {
		w.had, w.own = b.Cursor, append(w.own, b.Cursor)
	}
	if n := len(w.own); n > 2*mostMarks {
		w.own = slices.Delete(w.own, 0, n-mostMarks)
	}
}

// upToOwn returns the cursors before one, none if it is not among them.
func (w *Writer) upToOwn(c chaingql.Cursor) []chaingql.Cursor {
	return w.own[:max(0, slices.Index(w.own, c))]
}

// upTo is how many blocks there are up to and with a cursor.
func upTo(blocks []chaingql.Block, c chaingql.Cursor) int {
	n, found := slices.BinarySearchFunc(blocks, c, func(b chaingql.Block, c chaingql.Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
	if found {
		n++
	}
	return n
}

// compare sees that blocks are the ones that are stored.
func (w *Writer) compare(ctx context.Context, blocks []chaingql.Block) error {
	if len(blocks) == 0 {
		return nil
	}
	at, err := w.b.search(ctx, blocks[0].Cursor)
	if err != nil {
		return err
	}
	var before *place
	for from := at.end(blocks[0].Cursor); len(blocks) > 0; {
		context := min(from-1, window) // shows which of the messages are blocks
		if before != nil {
			context = 0
		}
		page, err := w.b.chain(ctx, before, from-context, noEnd, min(len(blocks), chaingql.MaxPage)+int(context))
		if err != nil {
			return err
		}
		page = slices.DeleteFunc(page, func(s stored) bool { return s.seq < from })
		if len(page) > 0 && (at.gone || page[0].seq > from) { // what is below that is gone
			n := upTo(blocks, page[0].block.Cursor)
			if n > 0 && blocks[n-1].Cursor == page[0].block.Cursor {
				n--
			}
			if page[0].prev != nil {
				n = upTo(blocks, *page[0].prev)
			}
			blocks, at.gone = blocks[n:], false
		}
		for _, s := range page[:min(len(page), len(blocks))] {
			b := blocks[0]
			if b.Cursor != s.block.Cursor {
				return fmt.Errorf("cursor %q is not stored, and newer ones are: %w", b.Cursor, ErrConflict)
			}
			at := b.Time
			b.Time = s.block.Time
			if b != s.block || !at.Equal(s.block.Time) {
				return fmt.Errorf("under cursor %q block %v is stored, not %v: %w", b.Cursor, s.block.Hash, b.Hash, ErrConflict)
			}
			p := s.place()
			blocks, from, before = blocks[1:], s.seq+1, &p
		}
		if len(page) == 0 {
			return nil
		}
	}
	return nil
}

// SetBalance gives an account a balance in nano-units. An account with a balance
// of zero is known all the same.
func (w *Writer) SetBalance(ctx context.Context, addr chaingql.Address, nano *big.Int) error {
	return w.SetBalances(ctx, map[chaingql.Address]*big.Int{addr: nano})
}

// SetBalances is SetBalance for many accounts. On error some may be set. The
// newest call for an account counts, so have each account written by one process
// at a time.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	left := make([]*nats.Msg, 0, len(balances))
	for addr, nano := range balances {
		if nano == nil || nano.Sign() < 0 {
			return fmt.Errorf("natschain: balance %v of %v is no number of nano-units", nano, addr)
		}
		// With an id, what was sent twice is kept once, however late one of them comes.
		left = append(left, &nats.Msg{Subject: w.b.names.value(&addr), Data: []byte(nano.String()),
			Header: nats.Header{jetstream.MsgIDHeader: {nuid.Next()}}})
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	for len(left) > 0 {
		n, err := w.send(ctx, left, func(int, *jetstream.PubAck) error { return nil })
		left = left[n:]
		if err != nil && (!w.b.passing(err) || ctx.Err() != nil) {
			return failed("set balances", err)
		}
		if err != nil {
			pause(ctx, pauseBetween)
		}
	}
	return nil
}

const (
	pending = 512 // messages that a call has under way
	ackWait = 2 * time.Second
)

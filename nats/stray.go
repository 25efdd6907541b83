package natschain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// errStray is the reason for which a well-formed message is not a block.
var errStray = errors.New("it does not follow the block before it")

// A StrayMessage is a message of the stream that is not a block of the chain.
// Reads skip it.
type StrayMessage struct {
	// Seq is the message's number in the stream.
	Seq uint64
	// Reason says why it is not a block.
	Reason error
}

// strays counts and logs messages that are no blocks, each once in a process.
type strays struct {
	mu      sync.Mutex
	count   uint64
	counted spans
	junk    spans // that cannot be decoded: reads pass them over
	lines   int   // logged since begun
	begun   time.Time
	silent  uint64 // found since the last line
}

// mostLines is how many stray messages are logged in a minute.
const mostLines = 10

func (x *strays) found(b *Backend, seq uint64, reason error) {
	x.mu.Lock()
	_, known := x.counted.at(seq)
	if !known {
		x.counted.add(seq, seq)
		x.count++
	}
	if !errors.Is(reason, errStray) {
		x.junk.add(seq, seq)
	}
	if now := time.Now(); !known && now.Sub(x.begun) > time.Minute {
		x.begun, x.lines = now, 0
	}
	others := x.silent
	switch {
	case known:
	case x.lines < mostLines:
		x.lines++
		x.silent = 0
	default:
		x.silent++
		known = true
	}
	x.mu.Unlock()
	if !known {
		b.opts.Logger.Warn("message of the stream skipped: it is not a block", "stream", b.names.stream, "seq", seq,
			"error", reason, "others", others)
	}
}

// past returns the message after those that cannot be decoded, if one is such.
func (x *strays) past(seq uint64) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, some := x.junk.at(seq)
	return s.to + 1, some
}

// before returns the first of the messages that cannot be decoded, if one is such.
func (x *strays) before(seq uint64) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, some := x.junk.at(seq)
	return s.from, some
}

func (x *strays) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counted, x.junk = nil, nil
}

// StrayCount returns the number of messages that this Backend skipped because
// they are not blocks of the chain. A message that is read again counts once, as
// long as the messages counted are in at most 1,024 places of the stream.
func (b *Backend) StrayCount() uint64 {
	b.strays.mu.Lock()
	defer b.strays.mu.Unlock()
	return b.strays.count
}

// skip returns the message after those that are known to be no blocks, if one is
// such, and else itself.
func (b *Backend) skip(seq uint64) uint64 {
	for {
		next, some := b.strays.past(seq)
		if !some {
			if next, some = b.survey.past(seq); !some {
				return seq
			}
		}
		seq = next
	}
}

// StrayMessages reads the whole stream, and yields the messages that are not
// blocks of the chain. It yields an error, and ends, if the stream cannot be
// read or lacks blocks.
func (b *Backend) StrayMessages(ctx context.Context) iter.Seq2[StrayMessage, error] {
	return func(yield func(StrayMessage, error) bool) {
		var (
			l      *links
			unsure []uint64 // they are strays if a block of the chain is after them
		)
		tell := func() bool {
			for _, seq := range unsure {
				if !yield(StrayMessage{Seq: seq, Reason: errStray}, nil) {
					return false
				}
			}
			unsure = nil
			return true
		}
		for from := uint64(1); ; {
			messages, _, err := b.batch(ctx, b.names.all(), from, chaingql.MaxPage)
			switch {
			case err != nil:
				yield(StrayMessage{}, err)
				return
			case len(messages) == 0 || len(unsure) > mostDoubt:
				if l != nil && l.gap && l.doubt {
					yield(StrayMessage{}, failed("list stray messages", b.missing(ctx, l.at)))
					return
				}
				if len(messages) == 0 {
					tell()
					return
				}
			case l == nil:
				if l, err = b.linksAt(ctx, messages); err != nil {
					yield(StrayMessage{}, err)
					return
				}
				l.patient = true
			}
			for _, s := range messages {
				from = s.seq + 1
				var blocks []stored
				if s.seq > l.seen {
					if blocks, err = l.add(s); err != nil {
						yield(StrayMessage{}, failed("list stray messages", fmt.Errorf("message %d: %w", s.seq, err)))
						return
					}
				}
				switch {
				case s.bad != nil:
					if !yield(StrayMessage{Seq: s.seq, Reason: s.bad}, nil) {
						return
					}
				case len(blocks) == 0:
					unsure = append(unsure, s.seq)
				}
				if (len(blocks) > 0 || !l.gap) && !tell() {
					return
				}
			}
		}
	}
}

// RemoveStray deletes a message of the stream that is not a block of the chain,
// and refuses to delete a block, or a message that no block follows yet. Other
// Backends may be reading meanwhile. It
// needs permission to publish to $JS.API.STREAM.MSG.DELETE.<chain>_blocks. A
// stream with deny_delete, as earlier versions of this package made it, permits
// it only if no block has the message's subject; the message is purged then,
// which needs the permission to prune.
func (b *Backend) RemoveStray(ctx context.Context, seq uint64) error {
	const what = "remove a stray message"
	s, some, err := b.block(ctx, wanted{Seq: seq})
	if err != nil || !some {
		return failed(what, err)
	}
	if s.bad == nil {
		isBlock, err := b.linked(ctx, s)
		switch {
		case err != nil:
			return failed(what, err)
		case isBlock:
			return fmt.Errorf("natschain: message %d of the stream is a block: it is not removed", seq)
		}
	}
	next, some, err := b.blockAt(ctx, seq+1, noEnd-window)
	switch {
	case err != nil:
		return failed(what, err)
	case !some:
		return fmt.Errorf("natschain: message %d of the stream is not removed: append a block first, "+
			"as the newest message shows where the stream ends", seq)
	case next.prev == nil:
		return fmt.Errorf("natschain: message %d of the stream is not removed: the block after it does not name "+
			"the one before, so readers could not tell that nothing is missing", seq)
	}
	stream, err := b.js.Stream(ctx, b.names.stream)
	if err != nil {
		return failed(what, b.denied(err))
	}
	if !stream.CachedInfo().Config.DenyDelete {
		return failed(what, b.denied(b.try(ctx, func(ctx context.Context) error {
			err := stream.DeleteMsg(ctx, seq)
			if refused(err, noMessageFound, noSuchSequence) {
				return nil // an attempt whose answer was lost
			}
			return err
		})))
	}
	first, some, err := b.block(ctx, wanted{Seq: 1, Next: s.subject})
	switch {
	case err != nil:
		return failed(what, err)
	case !some || first.seq < seq:
		return fmt.Errorf("natschain: message %d of the stream cannot be removed: the stream has deny_delete, "+
			"and others have its subject; it is skipped", seq)
	}
	return failed(what, b.denied(b.try(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject), jetstream.WithPurgeSequence(seq+1))
	})))
}

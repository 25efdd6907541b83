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

// errStray is the reason that a well-formed message is not a block.
var errStray = errors.New("the message does not name the block before it as its predecessor")

// A StrayMessage is a message of the stream that is not a block of the chain.
// Reads skip it.
type StrayMessage struct {
	// Seq is the message's number in the stream.
	Seq uint64
	// Reason is the reason that it is not a block.
	Reason error
}

// strays counts and logs messages that are not blocks, each once in a process.
type strays struct {
	mu          sync.Mutex
	count       uint64
	reported    spans
	undecodable spans // that cannot be decoded: reads pass them over
	logged      int   // lines logged since
	since       time.Time
	suppressed  uint64 // not logged since the last line
}

// maxStrayLines is the number of stray messages that are logged per minute.
const maxStrayLines = 10

func (x *strays) report(b *Backend, seq uint64, reason error) {
	x.mu.Lock()
	_, known := x.reported.at(seq)
	if !known {
		x.reported.add(seq, seq)
		x.count++
	}
	if !errors.Is(reason, errStray) {
		x.undecodable.add(seq, seq)
	}
	if now := time.Now(); !known && now.Sub(x.since) > time.Minute {
		x.since, x.logged = now, 0
	}
	others := x.suppressed
	switch {
	case known:
	case x.logged < maxStrayLines:
		x.logged++
		x.suppressed = 0
	default:
		x.suppressed++
		known = true
	}
	x.mu.Unlock()
	if !known {
		b.opts.Logger.Warn("stream message skipped: it is not a block of the chain", "stream", b.names.stream, "seq", seq,
			"error", reason, "others", others)
	}
}

// afterUndecodable returns the number after the run of undecodable messages that contains
// seq, and false if there is none.
func (x *strays) afterUndecodable(seq uint64) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, found := x.undecodable.at(seq)
	return s.to + 1, found
}

// firstUndecodable returns the first number of the run of undecodable messages that
// contains seq, and false if there is none.
func (x *strays) firstUndecodable(seq uint64) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, found := x.undecodable.at(seq)
	return s.from, found
}

func (x *strays) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reported, x.undecodable = nil, nil
}

// StrayCount returns the number of messages that this Backend skipped because
// they are not blocks of the chain. A message that is read again is not counted
// again. The Backend remembers the counted messages as up to 1,024 ranges of
// sequence numbers. Beyond that it forgets the lowest range.
func (b *Backend) StrayCount() uint64 {
	b.strays.mu.Lock()
	defer b.strays.mu.Unlock()
	return b.strays.count
}

// skip returns the first number from seq on that is not known to be a stray message. It
// skips only numbers that the survey covers: only the survey notices if the stream lost
// messages and others got their numbers.
func (b *Backend) skip(seq uint64) uint64 {
	_, seen := b.survey.snapshot()
	return b.skipUpTo(seen, seq)
}

// skipUpTo does the same as skip, but skips every number up to end that is known to be a stray.
func (b *Backend) skipUpTo(end, seq uint64) uint64 {
	for seq <= end {
		next, found := b.survey.afterStrays(seq)
		if is, _ := b.survey.is(seq); !found && !is {
			next, found = b.strays.afterUndecodable(seq)
		}
		if !found {
			break
		}
		seq = min(next, end+1)
	}
	return seq
}

// StrayMessages reads the whole stream and yields the messages that are not blocks of
// the chain. If the stream cannot be read or lacks blocks, it yields an error and ends.
func (b *Backend) StrayMessages(ctx context.Context) iter.Seq2[StrayMessage, error] {
	return func(yield func(StrayMessage, error) bool) {
		var (
			l      *linker
			unsure []uint64 // strays if a block of the chain follows them
		)
		flush := func() bool {
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
			case len(messages) == 0 || len(unsure) > maxForkScan:
				if l != nil && l.gap && l.forked {
					yield(StrayMessage{}, failed("list stray messages", b.missingError(ctx, l.at)))
					return
				}
				if len(messages) == 0 {
					flush()
					return
				}
			case l == nil:
				if l, err = b.linksAt(ctx, messages); err != nil {
					yield(StrayMessage{}, err)
					return
				}
				l.ignoreForks = true
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
				if (len(blocks) > 0 || !l.gap) && !flush() {
					return
				}
			}
		}
	}
}

// RemoveStray deletes a message that is not a block of the chain. It returns an error if
// the message is a block, or if no block follows it yet. Other Backends may read the
// stream meanwhile.
//
// RemoveStray needs permission to publish to $JS.API.STREAM.MSG.DELETE.<chain>_blocks.
// In a stream with deny_delete, as earlier versions of this package created it, only
// messages with a subject that no block has can be removed: RemoveStray purges them,
// which needs the permission to prune.
func (b *Backend) RemoveStray(ctx context.Context, seq uint64) error {
	const what = "remove a stray message"
	s, found, err := b.block(ctx, getRequest{Seq: seq})
	if err != nil || !found {
		return failed(what, err)
	}
	if s.bad == nil {
		isBlock, err := b.isLinked(ctx, s)
		switch {
		case err != nil:
			return failed(what, err)
		case isBlock:
			return fmt.Errorf("natschain: message %d of the stream is a block: it is not removed", seq)
		}
	}
	next, found, err := b.blockAt(ctx, seq+1, maxSeq-window)
	switch {
	case err != nil:
		return failed(what, err)
	case !found:
		return fmt.Errorf("natschain: message %d of the stream is not removed: append a block first, "+
			"because the newest message shows where the stream ends", seq)
	case next.prev == nil:
		return fmt.Errorf("natschain: message %d of the stream is not removed: the block after it does not name "+
			"its predecessor, so readers could not verify that nothing is missing", seq)
	}
	stream, err := b.js.Stream(ctx, b.names.stream)
	if err != nil {
		return failed(what, b.permissionError(err))
	}
	if !stream.CachedInfo().Config.DenyDelete {
		return failed(what, b.permissionError(b.retry(ctx, func(ctx context.Context) error {
			err := stream.DeleteMsg(ctx, seq)
			if hasCode(err, noMessageFound, noSuchSequence) {
				return nil // removed by an attempt whose response was lost
			}
			return err
		})))
	}
	first, found, err := b.block(ctx, getRequest{Seq: 1, Next: s.subject})
	switch {
	case err != nil:
		return failed(what, err)
	case !found || first.seq < seq:
		return fmt.Errorf("natschain: message %d of the stream cannot be removed: the stream has deny_delete, "+
			"and other messages have its subject; reads skip it", seq)
	}
	return failed(what, b.permissionError(b.retry(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject), jetstream.WithPurgeSequence(seq+1))
	})))
}

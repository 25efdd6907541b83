package natschain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// errStray is the reason why a well-formed message is not a block.
var errStray = errors.New("the message does not continue the chain: its prev, its cursor or its epoch is wrong")

// A StrayMessage describes a message in the block stream that is not a block of the
// chain. Reads skip such messages.
type StrayMessage struct {
	// Seq is the sequence number of the message in the stream.
	Seq uint64
	// Reason explains why the message is not a block.
	Reason error
}

// strays counts and logs messages that are not blocks. Each message is counted and logged
// once.
type strays struct {
	mu          sync.Mutex
	count       uint64
	reported    spans     // counted messages
	undecodable spans     // counted messages that cannot be decoded
	since       time.Time // start of the current minute
	logged      int       // number of lines logged in the current minute
	suppressed  uint64    // number of messages that were not logged since the last line
}

// maxStrayLines is the maximum number of stray messages that are logged per minute.
const maxStrayLines = 10

// report counts and logs the message with the sequence number seq, unless that was done before.
func (x *strays) report(b *Backend, seq uint64, reason error) {
	if suppressed, log := x.note(seq, reason); log {
		b.opts.Logger.Warn("skipped a message in the block stream that is not a block of the chain",
			slog.String("stream", b.names.stream), slog.Uint64("seq", seq), slog.Any("error", reason),
			slog.Uint64("suppressed", suppressed))
	}
}

// note counts a message. It reports whether to log the message, with the number of messages that were not logged since
// the last line.
func (x *strays) note(seq uint64, reason error) (suppressed uint64, log bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !errors.Is(reason, errStray) {
		x.undecodable.add(seq, seq)
	}
	if _, known := x.reported.at(seq); known {
		return 0, false
	}
	x.reported.add(seq, seq)
	x.count++
	if now := time.Now(); now.Sub(x.since) > time.Minute {
		x.since, x.logged = now, 0
	}
	if x.logged == maxStrayLines {
		x.suppressed++
		return 0, false
	}
	x.logged++
	suppressed, x.suppressed = x.suppressed, 0
	return suppressed, true
}

// undecodableAt returns the consecutive undecodable messages that include seq. It returns false if
// the message with this number is not known to be undecodable.
func (x *strays) undecodableAt(seq uint64) (span, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.undecodable.at(seq)
}

func (x *strays) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reported, x.undecodable = nil, nil
}

// StrayCount returns the number of messages that this Backend skipped because they are
// not blocks of the chain. A message that is read again is not counted again. For this
// purpose, the Backend remembers up to 1,024 ranges of sequence numbers. If there are
// more, it forgets the lowest range and may count the messages in that range again.
func (b *Backend) StrayCount() uint64 {
	b.strays.mu.Lock()
	defer b.strays.mu.Unlock()
	return b.strays.count
}

// skip returns the first sequence number, from seq on, that is not known to be that of a
// stray message. It skips only numbers that the survey covers, because only the survey
// notices if the stream lost messages and other messages received their numbers.
func (b *Backend) skip(seq uint64) uint64 {
	_, seen := b.survey.snapshot()
	return b.skipUpTo(seen, seq)
}

// skipUpTo is like skip, but skips the numbers of known strays up to end, whether or not
// the survey covers them.
func (b *Backend) skipUpTo(end, seq uint64) uint64 {
	for seq <= end {
		skipped, found := b.survey.straysAt(seq)
		if is, _ := b.survey.is(seq); !found && !is {
			skipped, found = b.strays.undecodableAt(seq)
		}
		if !found {
			break
		}
		seq = min(skipped.to, end) + 1
	}
	return seq
}

// StrayMessages reads the whole block stream and yields the messages that are not blocks
// of the chain. If the stream cannot be read or blocks are missing, StrayMessages yields
// an error and ends.
func (b *Backend) StrayMessages(ctx context.Context) iter.Seq2[StrayMessage, error] {
	return func(yield func(StrayMessage, error) bool) {
		var (
			l      *linker
			unsure []uint64 // messages that are strays if a block of the chain follows them
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

// RemoveStray deletes the message with sequence number seq if it is not a block of the
// chain. It returns an error if the message is a block, or if no block follows the
// message yet. Other Backends may read the stream at the same time.
//
// RemoveStray needs permission to publish to $JS.API.STREAM.MSG.DELETE.<chain>_blocks.
// Streams that were created by earlier versions of this package have deny_delete. In such
// a stream, RemoveStray purges the message, which needs the permission to prune and works
// only if no earlier message has the same subject.
func (b *Backend) RemoveStray(ctx context.Context, seq uint64) error {
	const what = "remove a stray message"
	s, found, err := b.block(ctx, getRequest{Seq: seq})
	if err != nil || !found {
		return failed(what, err)
	}
	if s.bad == nil {
		var isBlock bool
		err := b.verified(ctx, func() error {
			isBlock, err = b.isLinked(ctx, s)
			return err
		})
		switch {
		case err != nil:
			return failed(what, err)
		case isBlock:
			return fmt.Errorf("natschain: cannot remove message %d of the stream, because it is a block", seq)
		}
	}
	next, found, err := b.blockAt(ctx, seq+1, maxSeq-window)
	switch {
	case err != nil:
		return failed(what, err)
	case !found:
		return fmt.Errorf("natschain: cannot remove message %d of the stream, because no block follows it: "+
			"append a block first", seq)
	case next.prev == nil:
		return fmt.Errorf("natschain: cannot remove message %d of the stream: the next block does not contain "+
			"its predecessor's cursor, so readers could not verify that no block is missing", seq)
	}
	since := b.nc.LastError()
	stream, err := b.js.Stream(ctx, b.names.stream)
	if err != nil {
		return failed(what, b.permissionError(since, err))
	}
	if !stream.CachedInfo().Config.DenyDelete {
		return failed(what, b.permissionError(since, b.retry(ctx, func(ctx context.Context) error {
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
		return fmt.Errorf("natschain: cannot remove message %d of the stream: the stream has deny_delete, and "+
			"an earlier message has the same subject; reads skip the message", seq)
	}
	return failed(what, b.permissionError(since, b.retry(ctx, func(ctx context.Context) error {
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.subject), jetstream.WithPurgeSequence(seq+1))
	})))
}

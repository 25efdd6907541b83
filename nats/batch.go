package natschain

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/chaingql/chaingql"
)

// maxEmpty is the number of consecutive responses without a message after which read asks the
// leader: perhaps only a mirror of the stream responds, which has fewer messages.
const maxEmpty = 5

const (
	maxSeq     = math.MaxUint64 // greater than every sequence number
	batchBytes = 1 << 20        // maximum size of several messages in flight, because strays may be large
)

// read reads the messages of a subject with sequence numbers in [from, end) in batches. It
// passes each batch to take, which returns how many more messages it wants. If a batch
// contained nothing useful, read doubles the size of the next one. If subject matches all
// messages, read skips known strays.
//
// Any replica of the stream may respond, and a replica may lag behind the leader. A
// response is therefore complete only if it reaches end, if it has the requested length,
// or if the leader has no more messages.
func (b *Backend) read(
	ctx context.Context, subject string, from, end uint64, want int, take func([]stored) (int, error),
) error {
	for limit, empty := 1, 0; ; {
		if subject == b.names.all() {
			from = b.skip(from)
		}
		if from >= end || want <= 0 {
			return nil
		}
		n := max(want, limit)
		if subject == b.names.all() {
			n = int(min(uint64(n), end-from))
		}
		var batch []stored
		var err error
		if empty < maxEmpty {
			batch, _, err = b.batch(ctx, subject, from, n)
		} else {
			batch, err = b.batchFromLeader(ctx, subject, from, n)
		}
		if err != nil {
			return err
		}
		if empty++; len(batch) > 0 {
			empty = 0
		}
		full := len(batch) == n
		for i := range batch {
			if batch[i].seq >= end {
				batch, end = batch[:i], 0
				break
			}
			from = batch[i].seq + 1
		}
		wanted := want
		if want, err = take(batch); err != nil {
			return err
		}
		if limit = 1; want >= wanted {
			limit = min(2*n, chaingql.MaxPage)
		}
		if full || end == 0 {
			continue
		}
		newest, any, err := b.newest(ctx, subject)
		if err != nil {
			return err
		}
		if !any || newest.seq < from {
			return nil
		}
		if len(batch) == 0 {
			pause(ctx, pauseBetween) // the replica lags
		}
		if err := ctx.Err(); err != nil {
			return failed("read blocks", err)
		}
	}
}

// chain returns the blocks with sequence numbers in [from, end), but at most the first limit of them. If at is not nil,
// the blocks follow the block at that place in the stream. Otherwise they begin with the first message that is known to
// be a block or is the predecessor of another message. If there is no such message, chain returns no blocks.
func (b *Backend) chain(ctx context.Context, at *place, from, end uint64, limit int) ([]stored, error) {
	var (
		l     *linker
		early []stored // messages read before the beginning of the chain was known
		got   []stored
		want  = limit + 1 // one message more, which confirms that the first one is a block
	)
	if at != nil {
		l, want = &linker{b: b, at: *at, seen: from - 1}, limit
	}
	add := func(messages []stored) error {
		for _, s := range messages {
			if s.seq <= l.seen { // before the beginning of the chain, or already read
				if s.bad != nil {
					b.strays.report(b, s.seq, s.bad)
				}
				continue
			}
			blocks, err := l.add(s)
			if errors.Is(err, errForked) || errors.Is(err, errMissing) && l.forked {
				if err = b.resolveFork(ctx, l); err != nil {
					return err
				}
			}
			if err != nil {
				return err
			}
			if s.seq >= from {
				got = append(got, blocks...)
			}
		}
		return nil
	}
	err := b.read(ctx, b.names.all(), from, end, want, func(messages []stored) (int, error) {
		if l == nil {
			if early = append(early, messages...); len(early) == 0 {
				return window, nil
			}
			if i, _ := b.start(early); i < 0 {
				early = early[max(0, len(early)-surveySize):]
				return window, nil
			}
			var err error
			if early, err = b.readBefore(ctx, early); err != nil {
				return 0, err
			}
			if l, err = b.linksAt(ctx, early); err != nil {
				return 0, err
			}
			messages = early
		}
		err := add(messages)
		return limit - len(got), err
	})
	if l == nil && err == nil && len(early) > 0 {
		var oldest stored
		oldest, _, err = b.block(ctx, getRequest{Seq: 1, Next: b.names.all()})
		if err == nil && oldest.seq == early[0].seq {
			var later []stored // show whether early contains a block; without any, the chain may be a single block
			if last := early[len(early)-1].seq; end < maxSeq {
				later, err = b.between(ctx, last+1, last+1+window)
			}
			if err == nil {
				l, err = b.linksAt(ctx, append(slices.Clip(early), later...))
			}
			if err == nil {
				err = add(early)
			}
		}
	}
	if err == nil && l != nil && l.forked && l.gap && len(got) < limit {
		err = b.checkGap(ctx, *l)
	}
	if err == nil && l != nil && l.orphan && len(got) < limit {
		err = b.checkOrphan(ctx, l)
	}
	if _, seen := b.survey.snapshot(); err == nil && l != nil && l.seen > seen+window {
		_, _, _, err = b.tail(ctx) // extends the survey, so that the next page skips the strays among these messages
	}
	switch {
	case errors.Is(err, errMissing):
		return nil, failed("read blocks", b.missingError(ctx, l.at))
	case errors.Is(err, errForked): // all known blocks expired, and the next one names no predecessor
		l.at.linked = false
		rest, err := b.chain(ctx, &l.at, l.at.seq+1, end, limit-len(got))
		return append(got, rest...), err
	case err != nil:
		return nil, err
	}
	return got[:min(len(got), limit)], nil
}

// window is the number of messages that are read at a time to find a block and its predecessor.
const window = 256

// readBefore prepends earlier messages of the stream to messages. It stops when it is certain
// which messages are blocks, when there are no earlier messages, or when there are at least
// surveySize messages.
func (b *Backend) readBefore(ctx context.Context, messages []stored) ([]stored, error) {
	for span := uint64(window); ; span *= 4 {
		if _, sure := b.start(messages); sure || messages[0].seq == 1 || len(messages) >= surveySize {
			return messages, nil
		}
		to := messages[0].seq
		before, err := b.between(ctx, to-min(to-1, span), to)
		if err != nil {
			return nil, err
		}
		if len(before) == 0 && span > surveySize || to <= span+1 {
			return append(before, messages...), nil
		}
		messages = append(before, messages...)
	}
}

// shardBlocks returns up to limit blocks: the first ones that q selects with sequence numbers in [from, end). It reads
// only the messages of q's workchain or shard, but the predecessor of a block may be in another shard. To detect
// messages that are not blocks, it therefore reads the neighbors of a message, but only if the message is out of order,
// does not match q, or is the last one.
func (b *Backend) shardBlocks(
	ctx context.Context, q chaingql.BlocksQuery, from, end uint64, limit int,
) ([]stored, error) {
	var got []stored
	drop := func() error { // drops the last message of got if it is not a block
		is, err := b.isLinked(ctx, got[len(got)-1])
		if err == nil && !is {
			got = got[:len(got)-1]
		}
		return err
	}
	err := b.read(ctx, b.names.filter(q), from, end, limit, func(messages []stored) (int, error) {
		for _, s := range messages {
			if s.bad != nil {
				b.strays.report(b, s.seq, s.bad)
				continue
			}
			if is, known := b.isBlock(&s); known && !is {
				continue
			}
			ordered := len(got) == 0 || !suspect(&got[len(got)-1], &s)
			if !ordered {
				if err := drop(); err != nil {
					return 0, err
				}
			}
			got = append(got, s)
			if !ordered || !q.Matches(s.block) {
				if err := drop(); err != nil {
					return 0, err
				}
			}
		}
		if len(got) >= limit {
			if err := drop(); err != nil {
				return 0, err
			}
		}
		return limit - len(got), nil
	})
	if err == nil && len(got) > 0 && len(got) < limit {
		err = drop()
	}
	return got[:min(len(got), limit)], err
}

// count returns the approximate number of messages of a subject with sequence numbers that are
// at least from.
func (b *Backend) count(ctx context.Context, subject string, from uint64) (int, error) {
	_, n, err := b.batch(ctx, subject, from, 1)
	if n == unknown {
		err = failed("read blocks", errMirror)
	}
	return n, err
}

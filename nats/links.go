package natschain

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"strconv"

	"github.com/chaingql/chaingql"
)

var (
	// errMissing is returned if the message before a block did not arrive: it was lost in
	// transit or deleted from the stream.
	errMissing = errors.New("natschain: blocks before this message are missing")
	// errForked is returned if consecutive messages form a chain that does not continue the newest block. If that block
	// is still in the stream, the messages are not blocks of this chain. If it has expired, they may be.
	errForked = errors.New("natschain: new messages do not follow the newest known block, which has expired")
)

// A linker finds the blocks of the chain among the messages of a stream. Each block contains the cursor of its
// predecessor. The linker uses these cursors to recognize and skip messages of other programs, even if those messages
// form a chain of their own. If two messages have the same predecessor, the first one is the block.
type linker struct {
	b           *Backend
	at          place   // place of the newest block
	seen        uint64  // sequence number of the last message
	gap         bool    // whether messages after the newest block were removed from the stream
	lastStray   *stored // the last message that is not a block
	orphan      bool    // whether a message without a predecessor arrived: a block if the newest block has expired
	forked      bool    // whether lastStray is the predecessor of a message: both may be of another chain
	forkIsStray bool    // whether messages of another chain are strays, because the newest block still exists
	ignoreForks bool    // whether add skips messages of another chain instead of returning an error
}

// add takes the next message of the stream and returns it if it is a block. It returns errForked or errMissing if the
// messages form a chain that does not continue the newest block. The caller must then check whether that block is still
// in the stream: if it is, those messages are not blocks.
func (l *linker) add(s stored) ([]stored, error) {
	if !l.gap {
		// A linker that ignores forks may be creating the survey, and then receives no
		// undecodable messages: it skips all known ones, not only those in the survey.
		end := uint64(maxSeq - 1)
		if !l.ignoreForks {
			_, end = l.b.survey.snapshot()
		}
		l.gap = l.b.skipUpTo(end, l.seen+1) < s.seq
	}
	l.seen = s.seq
	if s.bad != nil {
		l.b.strays.report(l.b, s.seq, s.bad)
		return nil, nil
	}
	held := l.lastStray
	switch {
	case l.at.admits(&s) && s.prev == nil && l.gap:
		return nil, errMissing
	case l.at.admits(&s) && !tooFar(l.at.cursor, s.block.Cursor):
		*l = linker{b: l.b, at: s.place(), seen: s.seq, ignoreForks: l.ignoreForks}
		return []stored{s}, nil
	}
	l.lastStray = &s
	l.orphan = l.orphan || l.at.linked && s.prev == nil && s.block.Cursor > l.at.cursor && !s.isOlder(l.at.epoch) &&
		!tooFar(l.at.cursor, s.block.Cursor)
	l.b.strays.report(l.b, s.seq, errStray)
	if held == nil || !s.follows(held.block.Cursor) || s.block.Cursor <= l.at.cursor {
		return nil, nil
	}
	switch l.forked = true; {
	case l.ignoreForks || l.forkIsStray:
		return nil, nil
	case l.gap:
		return nil, errMissing
	}
	return nil, errForked
}

// maxForkScan is the maximum number of messages that are read after a gap to find the successor of the block before the
// gap.
const maxForkScan = 1 << 14

// admits reports whether s may be the block directly after the block at p.
func (p *place) admits(s *stored) bool {
	switch {
	case s.block.Cursor <= p.cursor || s.isOlder(p.epoch):
		return false
	case s.prev == nil:
		return !p.linked
	case p.cursor == "":
		return p.seq > 0 || *s.prev == ""
	}
	return *s.prev == p.cursor
}

// tooFar reports whether the cursor to is implausibly far above its predecessor from. If a message with such a cursor
// counted as a block, the blocks of the chain, whose cursors are lower, could not follow it. tooFar compares the
// numbers at the beginning of the cursors. Such a number is the masterchain's seq_no or the block's own number.
func tooFar(from, to chaingql.Cursor) bool {
	if from == "" {
		return false
	}
	low, lowOK := leadingNumber(from)
	high, highOK := leadingNumber(to)
	return lowOK && (!highOK || high > low && high-low > max(maxDistance, low/16))
}

const maxDistance = 1 << 24

// leadingNumber decodes the number at the beginning of a cursor that was made by
// [chaingql.ChainOrder] or [chaingql.SeqCursor]. The first hex digit of the cursor encodes
// the length of the number, and the number follows in hex.
func leadingNumber(c chaingql.Cursor) (uint64, bool) {
	if c == "" {
		return 0, false
	}
	digits, err := strconv.ParseUint(string(c[:1]), 16, 8)
	if err != nil || len(c) < int(digits)+2 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(c[1:digits+2]), 16, 64)
	return n, err == nil && max(1, (bits.Len64(n)+3)/4) == int(digits)+1
}

// start finds the chain's first block among consecutive messages of the stream. It returns
// the index of that block and whether the result is certain.
//
// A run is a sequence of messages in which each message contains the cursor of the one before it. start chooses the
// first message of a run:
//
//   - the first run that contains a known block;
//   - otherwise the first run of at least two messages that contains an epoch, as the messages of Writers do;
//   - otherwise the first run of at least two messages.
//
// Instead of a run, start chooses a longer one of the same kind that begins after its end. The first run may consist of
// messages that are not blocks and that became the oldest messages when the blocks before them expired.
//
// If messages are missing between two runs, start chooses the earlier run, so that the
// caller notices the gap. If there is no run of at least two messages, start returns -1,
// unless the messages name no predecessors at all: then it returns the first one.
func (b *Backend) start(messages []stored) (from int, sure bool) {
	type run struct {
		root, length int // index of the first message, and number of messages
		epoch        int64
	}
	runs, first, names := map[chaingql.Cursor]run{}, -1, false
	// length and end of each run, and whether one of its messages contains an epoch, by root
	lengths, ends := make([]int, len(messages)), make([]int, len(messages))
	written := make([]bool, len(messages))
	certain := -1
	for i := range messages {
		s := &messages[i]
		if s.bad != nil {
			continue
		}
		is, known := b.isBlock(s)
		if known && !is {
			continue
		}
		r := run{root: i, epoch: s.epoch}
		if s.prev == nil && first < 0 {
			first = i
		}
		if s.prev != nil {
			names = true
			if before, met := runs[*s.prev]; met && *s.prev < s.block.Cursor && !tooFar(*s.prev, s.block.Cursor) &&
				!s.isOlder(before.epoch) {
				r.root, r.length = before.root, before.length
			}
		}
		r.length++
		written[r.root] = written[r.root] || s.epoch != 0
		if had := runs[s.block.Cursor]; r.length > had.length || r.length == 1 && had.length == 1 {
			runs[s.block.Cursor] = r
		}
		if lengths[r.root], ends[r.root] = max(lengths[r.root], r.length), i; is && certain < 0 {
			certain = r.root
		}
	}
	from, count := certain, 0
	for root, length := range lengths {
		if length < 2 {
			continue
		}
		count++
		switch {
		case from < 0, root < from && b.hasGap(messages, ends[root], from):
			from, certain = root, -1
		case certain < 0 && (written[root] && !written[from] || written[root] == written[from] && ends[from] < root &&
			length > lengths[from]) && !b.hasGap(messages, ends[from], root):
			from = root
		}
	}
	switch {
	case from < 0 && names:
		return -1, false
	case from < 0:
		return first, true // the messages name no predecessors
	case first >= 0 && messages[from].prev == nil && messages[first].block.Cursor < messages[from].block.Cursor:
		return first, true
	}
	return from, certain >= 0 || count < 2
}

// hasGap reports whether messages between messages[from] and messages[to] were removed from
// the stream.
func (b *Backend) hasGap(messages []stored, from, to int) bool {
	for i := from + 1; i <= to; i++ {
		if b.skipUpTo(maxSeq-1, messages[i-1].seq+1) < messages[i].seq {
			return true
		}
	}
	return false
}

// resolveFork decides whether messages that form a chain, but do not continue the newest block, are blocks. If the
// newest block is still in the stream, they are not, which resolveFork records in l. Otherwise it returns an error:
// errMissing if the newest block contains no cursor of a predecessor, or else errForked.
func (b *Backend) resolveFork(ctx context.Context, l *linker) error {
	there, err := b.present(ctx, l.at)
	if err == nil && !there {
		if !l.at.linked || l.at.cursor == "" {
			return errMissing
		}
		return errForked
	}
	l.forkIsStray = true
	return err
}

// checkOrphan returns errForked if the newest block has expired, so that a message without a predecessor may be the
// next block. Otherwise such a message is not a block.
func (b *Backend) checkOrphan(ctx context.Context, l *linker) error {
	l.orphan = false
	if there, err := b.present(ctx, l.at); there || err != nil {
		return err
	}
	return errForked
}

// checkGap reads the messages after a gap. It returns errMissing if none of them is the successor of the block before
// the gap, because then blocks were deleted.
func (b *Backend) checkGap(ctx context.Context, l linker) error {
	l.ignoreForks = true
	var next []stored
	begun := l.seen
	err := b.read(ctx, b.names.all(), l.seen+1, l.seen+maxForkScan, window, func(messages []stored) (int, error) {
		for _, s := range messages {
			var err error
			if next, err = l.add(s); err != nil || len(next) > 0 {
				return 0, err
			}
		}
		return window, nil
	})
	if err == nil && len(next) == 0 && l.seen >= begun {
		err = errMissing
	}
	return err
}

// linksAt returns a linker that begins with the chain's first block in messages. The block
// before messages is unknown.
func (b *Backend) linksAt(ctx context.Context, messages []stored) (*linker, error) {
	i, _ := b.start(messages)
	if i < 0 {
		i = slices.IndexFunc(messages, func(s stored) bool { return s.follows("") })
	}
	if i < 0 {
		i = max(0, slices.IndexFunc(messages, func(s stored) bool { return s.bad == nil }))
	}
	return &linker{b: b, at: place{seq: max(1, messages[i].seq-1)}, seen: messages[i].seq - 1}, ctx.Err()
}

// suspect reports whether before and s, two consecutive messages of a shard, cannot both be blocks.
func suspect(before, s *stored) bool {
	return s.block.Cursor <= before.block.Cursor || (s.prev == nil) != (before.prev == nil) ||
		s.prev != nil && (*s.prev < before.block.Cursor || *s.prev >= s.block.Cursor) ||
		tooFar(before.block.Cursor, s.block.Cursor) || s.isOlder(before.epoch)
}

// isLinked reports whether s is a block. It is a block if that is already known, or if it is the predecessor or the
// successor of a nearby message.
func (b *Backend) isLinked(ctx context.Context, s stored) (bool, error) {
	if s.bad != nil {
		b.strays.report(b, s.seq, s.bad)
		return false, nil
	}
	if p, known := b.places.get(s.block.Cursor); known && p.seq == s.seq {
		return true, nil
	}
	if _, seen := b.survey.snapshot(); s.seq > seen {
		if _, _, _, err := b.tail(ctx); err != nil {
			return false, err
		}
	}
	if is, known := b.isBlock(&s); known {
		if is {
			b.places.add(s)
		} else {
			b.strays.report(b, s.seq, errStray)
		}
		return is, nil
	}
	const around = 8 // messages to read on each side; few, because each page at an old cursor reads them
	near, err := b.surroundings(ctx, s.seq, s.seq+1, around, around-1)
	for _, n := range near {
		if n.seq == s.seq {
			b.places.add(s)
			return true, err
		}
	}
	return false, err
}

// surroundings returns the blocks with sequence numbers in [from, end) and blocks around them. Only its predecessor or
// its successor shows that a message is a block, and many strays may be between the two. Therefore surroundings reads
// some messages before and after the range, and more of them until there is a block on each side.
func (b *Backend) surroundings(ctx context.Context, from, end, before, after uint64) ([]stored, error) {
	for ; ; before, after = 8*before, 8*before {
		begin := from - min(from-1, before)
		blocks, err := b.chain(ctx, nil, begin, end+after, int(end+after-begin))
		if err != nil || before >= surveySize {
			return blocks, err
		}
		_, seen := b.survey.snapshot()
		low, high := begin == 1, end+after > seen
		if n := len(blocks); n > 0 {
			low, high = low || blocks[0].seq <= from, high || blocks[n-1].seq >= end-1
		}
		if !low && high {
			oldest, found, err := b.block(ctx, getRequest{Seq: 1, Next: b.names.all()})
			if err != nil {
				return nil, err
			}
			low = !found || oldest.seq >= begin
		}
		if low && high {
			return blocks, nil
		}
	}
}

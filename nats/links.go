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
	// errMissing is returned if a block names a predecessor that did not arrive.
	errMissing = errors.New("natschain: blocks are missing before a message")
	// errForked is returned if messages name each other but do not follow the newest
	// block. They are strays, unless that block expired.
	errForked = errors.New("natschain: messages do not follow the newest block, which expired")
)

// A linker finds the blocks of the chain among the messages of a stream. Each block
// names the cursor of its predecessor, so messages of other programs are recognized
// and skipped, even if they name each other. Of two messages that name the same
// predecessor, the first is the block.
type linker struct {
	b           *Backend
	at          place   // place of the newest block
	seen        uint64  // number of the last message
	gap         bool    // messages after that block were removed from the stream
	lastStray   *stored // the last message that is not a block
	forked      bool    // a message follows lastStray, so both may be blocks of another chain
	forkIsStray bool    // the newest block is still in the stream, so those messages are strays
	ignoreForks bool    // a fork is not an error
}

// add takes the next message and returns it if it is a block. It returns errForked or
// errMissing if messages continue that do not follow the newest block. They are strays
// if that block is still in the stream.
func (l *linker) add(s stored) ([]stored, error) {
	if !l.gap {
		end := uint64(maxSeq - 1)
		if !l.ignoreForks { // otherwise l may create the survey, which omits undecodable messages
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
		l.at, l.gap, l.lastStray, l.forked, l.forkIsStray = s.place(), false, nil, false, false
		return []stored{s}, nil
	}
	l.lastStray = &s
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

// maxForkScan is the number of messages after a gap that are searched for one that
// follows the block before the gap.
const maxForkScan = 1 << 14

// admits reports whether a message may be the block after a place.
func (p *place) admits(s *stored) bool {
	switch {
	case s.block.Cursor <= p.cursor:
		return false
	case s.prev == nil:
		return !p.linked
	case p.cursor == "":
		return p.seq > 0 || *s.prev == ""
	}
	return *s.prev == p.cursor
}

// tooFar reports whether a cursor is implausibly higher than its predecessor. If such a
// message counted as a block, the chain would accept no further blocks. tooFar compares
// the numbers that cursors begin with: the masterchain's seq_no or the block's own number.
func tooFar(from, to chaingql.Cursor) bool {
	if from == "" {
		return false
	}
	low, lowOK := leadingNumber(from)
	high, highOK := leadingNumber(to)
	return lowOK && (!highOK || high > low && high-low > max(maxDistance, low/16))
}

const maxDistance = 1 << 24

// leadingNumber returns the number that a cursor of [chaingql.ChainOrder] or
// [chaingql.SeqCursor] begins with: in hex, after one digit for its length.
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

// start returns the index of the chain's first block among consecutive messages whose
// predecessor is unknown, and whether that is certain. It chooses the first run of
// messages that name each other and of which one is known to be a block. Otherwise it
// chooses the first run of at least two messages, unless a longer run begins after its
// end: the first run may be strays that became the oldest messages when the blocks before
// them expired. If messages are missing between two runs, it chooses the earlier one, so
// that the gap is noticed. It returns -1 if no message names another one.
func (b *Backend) start(messages []stored) (from int, sure bool) {
	type run struct{ root, length int } // messages that name each other, up to a cursor
	runs, first, names := map[chaingql.Cursor]run{}, -1, false
	lengths, ends := make([]int, len(messages)), make([]int, len(messages)) // of the runs, by root
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
		r := run{root: i}
		if s.prev == nil && first < 0 {
			first = i
		}
		if s.prev != nil {
			names = true
			if before, met := runs[*s.prev]; met && *s.prev < s.block.Cursor && !tooFar(*s.prev, s.block.Cursor) {
				r = before
			}
		}
		r.length++
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
		case certain < 0 && ends[from] < root && length > lengths[from] && !b.hasGap(messages, ends[from], root):
			from = root
		}
	}
	switch {
	case from < 0 && names:
		return -1, false
	case from < 0:
		return first, true // the blocks name no predecessors
	case first >= 0 && messages[from].prev == nil && messages[first].block.Cursor < messages[from].block.Cursor:
		return first, true
	}
	return from, certain >= 0 || count < 2
}

// hasGap reports whether messages between the two indexes were removed.
func (b *Backend) hasGap(messages []stored, from, to int) bool {
	for i := from + 1; i <= to; i++ {
		if b.skipUpTo(maxSeq-1, messages[i-1].seq+1) < messages[i].seq {
			return true
		}
	}
	return false
}

// resolveFork handles messages that name each other but not the newest block. They are
// strays if that block is still in the stream; otherwise it returns errForked.
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

// checkGap returns errMissing if no message after a gap follows the block before it.
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

// linksAt returns a linker that begins among messages whose predecessor is unknown.
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

func suspect(before, s *stored) bool {
	return s.block.Cursor <= before.block.Cursor || (s.prev == nil) != (before.prev == nil) ||
		tooFar(before.block.Cursor, s.block.Cursor)
}

// isLinked reports whether a message is a block: it is known to be one, a neighbor names
// it, or it names the neighbor before it.
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
	const around = 8 // messages on each side; few, because each page at an old cursor does this
	near, err := b.chain(ctx, nil, s.seq-min(s.seq-1, around), s.seq+around, 2*around)
	for _, n := range near {
		if n.seq == s.seq {
			b.places.add(s)
			return true, err
		}
	}
	return false, err
}

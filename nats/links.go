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
	// errMissing is returned if a block names one before it that should have come.
	errMissing = errors.New("natschain: blocks are missing before a message")
	// errForked says that messages which name each other do not follow the newest
	// block. They are strays, unless that block expired.
	errForked = errors.New("natschain: messages do not follow the newest block, which is gone")
)

// links finds the blocks of the chain among the messages of a stream. Each block
// names the cursor of the one before it, so a message that somebody else left
// there can be told from a block and costs nothing but itself, and so can any
// number of them that name each other. Of two messages that name the same block
// before them, the first is the block.
type links struct {
	b       *Backend
	at      place   // of the newest block
	seen    uint64  // number of the last message
	gap     bool    // messages after that block are gone from the stream
	held    *stored // the last message that is no block
	doubt   bool    // two messages that name each other follow the newest block, and not it
	settled bool    // they are strays, as that block is still there
	patient bool    // that is never an error
}

// add takes the next message, and returns it if it is a block. errForked, or
// errMissing, says that messages go on that do not follow the newest block: they
// are strays if that block is still there.
func (l *links) add(s stored) ([]stored, error) {
	l.gap = l.gap || l.b.skip(l.seen+1) < s.seq
	l.seen = s.seq
	if s.bad != nil {
		l.b.strays.found(l.b, s.seq, s.bad)
		return nil, nil
	}
	held := l.held
	switch {
	case l.at.admits(&s) && s.prev == nil && l.gap:
		return nil, errMissing
	case l.at.admits(&s) && !far(l.at.cursor, s.block.Cursor):
		l.at, l.gap, l.held, l.doubt, l.settled = s.place(), false, nil, false, false
		return []stored{s}, nil
	}
	l.held = &s
	l.b.strays.found(l.b, s.seq, errStray)
	if held == nil || !s.follows(held.block.Cursor) || s.block.Cursor <= l.at.cursor {
		return nil, nil
	}
	switch l.doubt = true; {
	case l.patient || l.settled:
		return nil, nil
	case l.gap:
		return nil, errMissing
	}
	return nil, errForked
}

// mostDoubt is how many messages after a gap are read for one that follows the
// block before it.
const mostDoubt = 1 << 14

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

// far reports whether a cursor is so much higher than the one before it that it
// is not believed: a chain that ended in it would take no more blocks. It compares
// the number that cursors begin with, which is the masterchain's seq_no or the
// block's own number.
func far(from, to chaingql.Cursor) bool {
	if from == "" {
		return false
	}
	low, lowOK := leading(from)
	high, highOK := leading(to)
	return lowOK && (!highOK || high > low && high-low > max(farthest, low/16))
}

const farthest = 1 << 24

// leading is the number that a cursor of [chaingql.ChainOrder] or
// [chaingql.SeqCursor] begins with: in hex, after one digit for its length.
func leading(c chaingql.Cursor) (uint64, bool) {
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

// start is where the chain begins among consecutive messages whose predecessor is
// not known, and whether that is sure. A run of messages that name each other
// counts if one of them is known to be a block, and else the first of at least
// two, and the first of two with a hole between them, so that the hole is noticed.
// It returns -1 if no message is named by another.
func (b *Backend) start(messages []stored) (from int, sure bool) {
	type run struct{ root, length int } // of the messages that lead to a cursor
	runs, first, names := map[chaingql.Cursor]run{}, -1, false
	lengths, ends := make([]int, len(messages)), make([]int, len(messages)) // of runs, by root
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
			if before, met := runs[*s.prev]; met && *s.prev < s.block.Cursor && !far(*s.prev, s.block.Cursor) {
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
		if from < 0 || root < from && b.hole(messages, ends[root], from) {
			from, certain = root, -1
		}
	}
	switch {
	case from < 0 && names:
		return -1, false
	case from < 0:
		return first, true // a chain that names no predecessors
	case first >= 0 && messages[from].prev == nil && messages[first].block.Cursor < messages[from].block.Cursor:
		return first, true
	}
	return from, certain >= 0 || count < 2
}

// hole reports whether messages are gone between two of them.
func (b *Backend) hole(messages []stored, from, to int) bool {
	for i := from + 1; i <= to; i++ {
		if b.skip(messages[i-1].seq+1) < messages[i].seq {
			return true
		}
	}
	return false
}

// doubted is for messages that name each other and not the newest block: they are
// strays as long as that block is there, and else errForked is returned.
func (b *Backend) doubted(ctx context.Context, l *links) error {
	there, err := b.still(ctx, l.at)
	if err == nil && !there {
		if !l.at.linked || l.at.cursor == "" {
			return errMissing
		}
		return errForked
	}
	l.settled = true
	return err
}

// unbroken returns errMissing if no message after a gap follows the block before it.
func (b *Backend) unbroken(ctx context.Context, l links) error {
	l.patient = true
	var next []stored
	begun := l.seen
	err := b.read(ctx, b.names.all(), l.seen+1, l.seen+mostDoubt, window, func(messages []stored) (int, error) {
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

// linksAt begins among messages whose predecessor is not known.
func (b *Backend) linksAt(ctx context.Context, messages []stored) (*links, error) {
	i, _ := b.start(messages)
	if i < 0 {
		i = slices.IndexFunc(messages, func(s stored) bool { return s.follows("") })
	}
	if i < 0 {
		i = max(0, slices.IndexFunc(messages, func(s stored) bool { return s.bad == nil }))
	}
	return &links{b: b, at: place{seq: max(1, messages[i].seq-1)}, seen: messages[i].seq - 1}, ctx.Err()
}

func suspect(before, s *stored) bool {
	return s.block.Cursor <= before.block.Cursor || (s.prev == nil) != (before.prev == nil) ||
		far(before.block.Cursor, s.block.Cursor)
}

// linked reports whether a message is a block: whether that is known, or the ones
// around it name it, or it the one before it.
func (b *Backend) linked(ctx context.Context, s stored) (bool, error) {
	if s.bad != nil {
		b.strays.found(b, s.seq, s.bad)
		return false, nil
	}
	if p, known := b.marks.at(s.block.Cursor); known && p.seq == s.seq {
		return true, nil
	}
	if _, seen := b.survey.snapshot(); s.seq > seen {
		if _, _, _, err := b.tail(ctx); err != nil {
			return false, err
		}
	}
	if is, known := b.isBlock(&s); known {
		if is {
			b.marks.note(s)
		} else {
			b.strays.found(b, s.seq, errStray)
		}
		return is, nil
	}
	const around = 8 // on either side: each page at an old cursor looks at some messages in this way
	near, err := b.chain(ctx, nil, s.seq-min(s.seq-1, around), s.seq+around, 2*around)
	for _, n := range near {
		if n.seq == s.seq {
			b.marks.note(s)
			return true, err
		}
	}
	return false, err
}

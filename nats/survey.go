package natschain

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
)

// A survey is what is known for certain of the newest part of the stream: which
// of its messages are blocks. It begins with the newest messages, as many as
// surveyed says, and grows with the chain.
type survey struct {
	mu    sync.Mutex
	from  uint64 // the first message that it is about
	seen  uint64 // the last, 0 if there is no survey
	head  stored // the newest block
	empty spans  // well-formed messages among them that are no blocks of the chain
	turn  semaphore
}

// take waits until no other call makes or extends the survey: they would all read
// the same.
func (x *survey) take(ctx context.Context) error {
	x.mu.Lock()
	if x.turn == nil {
		x.turn = make(semaphore, 1)
	}
	x.mu.Unlock()
	return x.turn.take(ctx)
}

const (
	surveyed   = 1 << 14 // messages, at Open or if some of the newest are no blocks
	glance     = 900     // messages, else
	mostBehind = 1 << 17 // messages that are read on from a survey; of more, the newest are surveyed
)

// snapshot returns the newest block, and the number of the last message.
func (x *survey) snapshot() (head stored, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.head, x.seen
}

// is reports whether a message is a block, if that is known.
func (x *survey) is(seq uint64) (is, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen == 0 || seq < x.from || seq > x.seen {
		return false, false
	}
	_, none := x.empty.at(seq)
	return !none && seq <= x.head.seq, true
}

// past returns the message after those that are known to be no blocks, if one is
// such. Those after the newest block are not: it may turn out otherwise.
func (x *survey) past(seq uint64) (uint64, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, some := x.empty.at(seq)
	return s.to + 1, some
}

// note adds blocks of the chain, which follow each other and the newest one, and
// the messages up to one that are none.
func (x *survey) note(seen uint64, blocks ...stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range blocks {
		if x.seen == 0 || s.seq <= x.head.seq {
			continue
		}
		if s.seq > x.head.seq+1 {
			if dropped := x.empty.add(x.head.seq+1, s.seq-1); dropped >= x.from {
				x.from = dropped + 1
			}
		}
		x.head = s
	}
	if x.seen > 0 {
		x.seen = max(x.seen, seen, x.head.seq)
	}
}

// next notes a message, and returns the newest block, if the message is that one
// or the one after all that is known, and follows it.
func (x *survey) next(s *stored) (stored, bool) {
	head, seen := x.snapshot()
	at := head.place()
	switch {
	case seen == 0 || s.bad != nil:
		return stored{}, false
	case s.seq == head.seq:
		return head, s.block.Cursor == head.block.Cursor
	case s.seq != seen+1 || !at.admits(s) || far(at.cursor, s.block.Cursor):
		return stored{}, false
	}
	x.note(s.seq, *s)
	return *s, true
}

func (x *survey) begin(first stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.from, x.seen, x.head, x.empty = first.seq, first.seq, first, nil
}

func (x *survey) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.from, x.seen, x.head, x.empty = 0, 0, stored{}, nil
}

// isBlock reports whether a message is a block, if that is known.
func (b *Backend) isBlock(s *stored) (is, known bool) {
	if p, met := b.marks.at(s.block.Cursor); met && p.seq == s.seq || s.seq == 1 && s.follows("") {
		return true, true
	}
	return b.survey.is(s.seq)
}

// tail is the newest block, and the number of the newest message, which may be no
// block, or gone; 0 where there never was one.
func (b *Backend) tail(ctx context.Context) (newest stored, some bool, end uint64, err error) {
	newest, some, err = b.newest(ctx, b.names.all())
	if err == nil && !some {
		end, err = b.lastSeq(ctx)
		if err != nil || end == 0 {
			return stored{}, false, 0, err
		}
		newest, some, err = b.newest(ctx, b.names.all()) // the first may have come between
	}
	if err != nil || !some {
		return stored{}, false, end, err
	}
	end = newest.seq
	newest, some, err = b.head(ctx, newest)
	return newest, some, end, err
}

// head is the newest block, by the newest message.
func (b *Backend) head(ctx context.Context, newest stored) (stored, bool, error) {
	if head, known := b.survey.next(&newest); known {
		return head, true, nil
	}
	if err := b.survey.take(ctx); err != nil {
		return stored{}, false, err
	}
	defer b.survey.turn.release()
	if head, known := b.survey.next(&newest); known {
		return head, true, nil
	}
	if head, seen := b.survey.snapshot(); seen > 0 && head.seq <= newest.seq && newest.seq <= seen+mostBehind {
		there, err := b.still(ctx, head.place())
		if err == nil && there {
			l := &links{b: b, at: head.place(), seen: seen, patient: true}
			if err = b.readOn(ctx, l, newest.seq); err == nil && !(l.gap && l.doubt) {
				head, _ = b.survey.snapshot()
				return head, true, nil
			}
		}
		if err != nil && !errors.Is(err, errReplaced) && !errors.Is(err, errMissing) {
			return stored{}, false, err
		}
	}
	if head, some, err := b.glance(ctx, newest.seq); some || err != nil {
		return head, some, err
	}
	return b.surveyNewest(ctx, newest.seq)
}

// glance is a survey of a few messages, if all of them follow each other.
func (b *Backend) glance(ctx context.Context, end uint64) (stored, bool, error) {
	if !b.opened.Load() || end <= glance {
		return stored{}, false, nil
	}
	messages, _, err := b.batch(ctx, b.names.all(), end+1-glance, glance)
	if err != nil || len(messages) == 0 {
		return stored{}, false, err
	}
	for i := range messages {
		s := &messages[i]
		if s.bad != nil || s.prev == nil || i > 0 && !s.follows(messages[i-1].block.Cursor) {
			return stored{}, false, nil
		}
	}
	last := messages[len(messages)-1]
	if last.seq != end || len(messages) != glance {
		return stored{}, false, nil
	}
	b.survey.begin(messages[0])
	b.survey.note(end, messages[1:]...)
	return last, true, nil
}

// readOn reads messages up to one, and notes which are blocks.
func (b *Backend) readOn(ctx context.Context, l *links, to uint64) error {
	return b.read(ctx, b.names.all(), l.seen+1, to+1, chaingql.MaxPage, func(messages []stored) (int, error) {
		for _, s := range messages {
			if s.seq <= l.seen {
				continue
			}
			blocks, err := l.add(s)
			if err != nil {
				return 0, err
			}
			b.survey.note(l.seen, blocks...)
		}
		return chaingql.MaxPage, nil
	})
}

// surveyNewest reads the newest messages, backwards until they are enough.
func (b *Backend) surveyNewest(ctx context.Context, end uint64) (stored, bool, error) {
	b.survey.forget()
	oldest, some, err := b.block(ctx, wanted{Seq: 1, Next: b.names.all()})
	if err != nil || !some {
		return stored{}, false, err
	}
	var messages []stored // well-formed ones
	for from := end + 1; from > oldest.seq; {
		if len(messages) >= surveyed {
			if i, _ := b.start(messages); i >= 0 {
				break
			}
		}
		if s, some := b.strays.before(from - 1); some { // junk
			from = s
			continue
		}
		to := from
		from -= min(from-oldest.seq, chaingql.MaxPage)
		part, err := b.between(ctx, from, to)
		if err != nil {
			return stored{}, false, err
		}
		part = slices.DeleteFunc(part, func(s stored) bool {
			if s.bad != nil {
				b.strays.found(b, s.seq, s.bad)
			}
			return s.bad != nil
		})
		messages = append(part, messages...)
	}
	var l *links
	for len(messages) > 0 {
		if l, err = b.linksAt(ctx, messages); err != nil {
			return stored{}, false, err
		}
		l.patient = true
		b.survey.forget()
		first := true
		for _, s := range messages {
			if s.seq <= l.seen {
				continue
			}
			blocks, err := l.add(s)
			if err != nil && !errors.Is(err, errMissing) {
				return stored{}, false, err
			}
			if errors.Is(err, errMissing) { // of a chain that does not name predecessors
				l.gap = false
				if blocks, err = l.add(s); err != nil {
					return stored{}, false, err
				}
				first = true
			}
			if first && len(blocks) > 0 {
				b.survey.begin(blocks[0])
				first = false
			}
			b.survey.note(l.seen, blocks...)
		}
		if !l.gap || !l.doubt {
			break
		}
		i := slices.IndexFunc(messages, func(s stored) bool { return s.seq > l.at.seq })
		messages = messages[i:] // blocks were deleted: pages that come there say so
	}
	head, seen := b.survey.snapshot()
	if seen == 0 {
		return stored{}, false, nil
	}
	b.survey.note(end)
	return head, true, nil
}

// between returns the messages from one place in the stream to short of another.
func (b *Backend) between(ctx context.Context, from, end uint64) (messages []stored, err error) {
	err = b.read(ctx, b.names.all(), from, end, int(end-from), func(part []stored) (int, error) {
		messages = append(messages, part...)
		return int(end - from), nil
	})
	return messages, err
}

package natschain

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/chaingql/chaingql"
)

// A survey records which of the newest messages in the stream are blocks. The other messages are called strays. The
// survey is extended as the chain grows.
type survey struct {
	mu     sync.Mutex
	from   uint64    // sequence number of the first message covered
	seen   uint64    // sequence number of the last message covered, 0 if there is no survey
	head   stored    // the newest block
	last   stored    // the newest message covered, if it came after the newest block
	strays spans     // messages that are not blocks of the chain
	denied uint64    // how often a read took a message for a stray because of the survey
	sem    semaphore // held by the call that creates or extends the survey

	unfinished backlog // what an interrupted surveyNewest has read; sem guards it
}

// A backlog contains the newest messages of the stream: those that can be decoded among all from the sequence number
// from to end.
type backlog struct {
	from, end uint64
	messages  []stored
	window    uint64 // number of messages to read next; halved after an error, because they may be large
}

const (
	surveySize      = 1 << 14 // messages that a full survey covers
	quickSurveySize = 900     // messages that a quick survey covers, all of which must be blocks
	maxCatchUp      = 1 << 17 // messages by which a survey can be extended; if more are new, it starts again
)

// snapshot returns the newest block and the sequence number of the last message covered.
func (x *survey) snapshot() (head stored, seen uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.head, x.seen
}

// end returns the newest block and the newest message, which may be the same message.
func (x *survey) end() (head, last stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last.seq > x.head.seq {
		return x.head, x.last
	}
	return x.head, x.head
}

// setLast records the newest message that the survey covers. It must be called only if that message came after the
// newest block and is therefore not a block.
func (x *survey) setLast(newest stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = newest
}

// is reports whether the message with the sequence number seq is a block. If the survey
// does not cover the message, known is false.
func (x *survey) is(seq uint64) (is, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.seen == 0 || seq < x.from || seq > x.seen {
		return false, false
	}
	_, none := x.strays.at(seq)
	if is = !none && seq <= x.head.seq; !is {
		x.denied++
	}
	return is, true
}

// straysAt returns the consecutive strays that include seq, and false if seq is not a stray. Messages after the newest
// block do not count as strays yet, because a later message may prove that they are blocks.
func (x *survey) straysAt(seq uint64) (span, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found, is := x.strays.at(seq)
	if is {
		x.denied++
	}
	return found, is
}

// note extends the survey up to the message with the sequence number seen. The argument blocks must contain all blocks
// among the added messages, and these must follow the newest block of the survey.
func (x *survey) note(seen uint64, blocks ...stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, s := range blocks {
		if x.seen == 0 || s.seq <= x.head.seq {
			continue
		}
		if s.seq > x.head.seq+1 {
			if dropped := x.strays.add(x.head.seq+1, s.seq-1); dropped >= x.from {
				x.from = dropped + 1
			}
		}
		x.head = s
	}
	if x.seen > 0 {
		x.seen = max(x.seen, seen, x.head.seq)
	}
}

// next extends the survey by s if s directly follows the newest block. It returns the newest
// block. It returns false if s is neither that block nor its direct successor.
func (x *survey) next(s *stored) (stored, bool) {
	head, seen := x.snapshot()
	at := head.place()
	switch {
	case seen == 0 || s.bad != nil:
		return stored{}, false
	case s.seq == seen:
		return x.meet(s)
	case s.seq != seen+1 || !at.admits(s) || tooFar(at.cursor, s.block.Cursor):
		return stored{}, false
	}
	x.note(s.seq, *s)
	return *s, true
}

func (x *survey) start(first stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.from, x.seen, x.head, x.last, x.strays = first.seq, first.seq, first, stored{}, nil
}

// extendBack extends the survey back to the message with the sequence number from, and records the added messages as
// strays.
func (x *survey) extendBack(from uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if from < x.from {
		x.strays.add(from, x.from-1)
		x.from = from
	}
}

func (x *survey) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.from, x.seen, x.head, x.last, x.strays = 0, 0, stored{}, stored{}, nil
}

// isBlock reports whether s is a block. If neither the cache of recently read blocks nor the survey contains s, known
// is false.
func (b *Backend) isBlock(s *stored) (is, known bool) {
	if p, met := b.places.get(s.block.Cursor); met && p.seq == s.seq || s.seq == 1 && s.follows("") {
		return true, true
	}
	return b.survey.is(s.seq)
}

// quickSurvey creates a survey of the newest quickSurveySize messages. It returns false during Open, after an
// interrupted survey, if there are fewer messages, or if one of them is not the successor of the message before it. The
// messages must contain epochs, as those of Writers do: a run of strays without an epoch may be longer than these
// messages, and only a full survey finds the chain before it.
func (b *Backend) quickSurvey(ctx context.Context, end uint64) (stored, bool, error) {
	if !b.opened.Load() || end <= quickSurveySize || b.survey.unfinished.window > 0 {
		return stored{}, false, nil
	}
	messages, _, err := b.batch(ctx, b.names.all(), end+1-quickSurveySize, quickSurveySize)
	if err != nil {
		b.survey.unfinished.window = quickSurveySize // large messages are read by surveyNewest, in several calls
	}
	if err != nil || len(messages) == 0 {
		return stored{}, false, err
	}
	for i := range messages {
		s := &messages[i]
		if s.bad != nil || s.prev == nil || s.epoch == 0 ||
			i > 0 && (!s.follows(messages[i-1].block.Cursor) || s.isOlder(messages[i-1].epoch)) {
			return stored{}, false, nil
		}
	}
	last := messages[len(messages)-1]
	if last.seq != end || len(messages) != quickSurveySize {
		return stored{}, false, nil
	}
	b.survey.start(messages[0])
	b.survey.note(end, messages[1:]...)
	return last, true, nil
}

// readOn extends the survey up to the message with the sequence number to. If there is not enough time to read all of
// these messages, the next call continues after those that were read.
func (b *Backend) readOn(ctx context.Context, l *linker, to uint64) error {
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
		if n := len(messages); n > 0 && !l.gap && messages[n-1].seq > l.at.seq {
			b.survey.setLast(messages[n-1])
		}
		return chaingql.MaxPage, nil
	})
}

// surveyNewest creates a survey of at least the newest surveySize messages, or of all messages if there are fewer. It
// reads the stream backward. If it is interrupted, the next call continues with the messages that were not read yet.
func (b *Backend) surveyNewest(ctx context.Context, end uint64) (stored, bool, error) {
	b.survey.forget()
	oldest, found, err := b.block(ctx, getRequest{Seq: 1, Next: b.names.all()})
	if err != nil || !found {
		return stored{}, false, err
	}
	log, err := b.resumeBacklog(ctx, end)
	if err == nil {
		err = b.readBacklog(ctx, &log, oldest.seq)
	}
	if err != nil {
		b.survey.unfinished = log
		return stored{}, false, err
	}
	b.survey.unfinished = backlog{}
	messages, from := log.messages, log.from
	var l *linker
	for len(messages) > 0 {
		if l, err = b.linksAt(ctx, messages); err != nil {
			return stored{}, false, err
		}
		l.ignoreForks = true
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
			if errors.Is(err, errMissing) { // the blocks do not name their predecessors
				l.gap = false
				if blocks, err = l.add(s); err != nil {
					return stored{}, false, err
				}
				first = true
			}
			if first && len(blocks) > 0 {
				b.survey.start(blocks[0])
				first = false
			}
			b.survey.note(l.seen, blocks...)
		}
		if !l.gap || !l.forked {
			break
		}
		i := slices.IndexFunc(messages, func(s stored) bool { return s.seq > l.at.seq })
		messages, from = messages[i:], maxSeq // blocks were deleted: pages that reach the gap return an error
	}
	head, seen := b.survey.snapshot()
	if seen == 0 {
		return stored{}, false, nil
	}
	if from <= oldest.seq { // the survey reaches the beginning of the stream
		b.survey.extendBack(from)
	}
	b.survey.note(end)
	return head, true, nil
}

// resumeBacklog returns the backlog of the interrupted call, extended to end. If there is none, or if the stream has
// lost messages since then, it returns an empty one.
func (b *Backend) resumeBacklog(ctx context.Context, end uint64) (backlog, error) {
	log, n := b.survey.unfinished, len(b.survey.unfinished.messages)
	fresh := backlog{from: end + 1, end: end, window: cmp.Or(log.window, chaingql.MaxPage)}
	if n == 0 || end < log.end || end > log.end+surveySize {
		return fresh, nil
	}
	last := log.messages[n-1]
	now, found, err := b.block(ctx, getRequest{Seq: last.seq})
	if err == nil && (!found || !now.received.Equal(last.received)) {
		return fresh, nil
	}
	for err == nil && log.end < end {
		to := min(end, log.end+log.window)
		var part []stored
		if part, err = b.decodable(ctx, &log, log.end+1, to+1); err == nil {
			log.messages, log.end = append(log.messages, part...), to
		}
	}
	return log, err
}

// readBacklog extends log backward until it shows where the chain is, or reaches the message with the number oldest.
func (b *Backend) readBacklog(ctx context.Context, log *backlog, oldest uint64) error {
	for log.from > oldest {
		if len(log.messages) >= surveySize {
			if i, _ := b.start(log.messages); i >= 0 {
				break
			}
		}
		if skipped, found := b.strays.undecodableAt(log.from - 1); found {
			log.from = skipped.from
			continue
		}
		from := log.from - min(log.from-oldest, log.window)
		part, err := b.decodable(ctx, log, from, log.from)
		if err != nil {
			return err
		}
		log.from, log.messages = from, append(part, log.messages...)
	}
	return nil
}

// decodable returns the messages with sequence numbers in [from, end) that can be decoded, and reports the others. It
// sets the window of log for the next messages.
func (b *Backend) decodable(ctx context.Context, log *backlog, from, end uint64) ([]stored, error) {
	messages, err := b.between(ctx, from, end)
	if log.window = min(2*log.window, chaingql.MaxPage); err != nil {
		log.window = max(1, (end-from)/2)
	}
	return slices.DeleteFunc(messages, func(s stored) bool {
		if s.bad != nil {
			b.strays.report(b, s.seq, s.bad)
		}
		return s.bad != nil
	}), err
}

// between returns the messages with sequence numbers in [from, end).
func (b *Backend) between(ctx context.Context, from, end uint64) (messages []stored, err error) {
	err = b.read(ctx, b.names.all(), from, end, int(end-from), func(part []stored) (int, error) {
		messages = append(messages, part...)
		return int(end - from), nil
	})
	return messages, err
}

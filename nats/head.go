package natschain

import (
	"cmp"
	"context"
	"errors"
)

// tail returns the newest block, and the sequence number of the newest message as end. That
// message may not be a block, or may have been removed. If the stream never had a message,
// end is 0.
func (b *Backend) tail(ctx context.Context) (newest stored, found bool, end uint64, err error) {
	newest, found, err = b.newest(ctx, b.names.all())
	if err == nil && !found {
		var whole seqRange
		if _, whole, err = b.state(ctx); err != nil || whole.end == 1 {
			return stored{}, false, 0, err
		}
		end = whole.end - 1
		newest, found, err = b.newest(ctx, b.names.all()) // the first message may have arrived between the two requests
	}
	if err != nil || !found {
		return stored{}, false, end, err
	}
	end = newest.seq
	newest, found, err = b.head(ctx, newest)
	return newest, found, end, err
}

// head returns the newest block. The argument newest is the newest message.
func (b *Backend) head(ctx context.Context, newest stored) (stored, bool, error) {
	if head, known := b.survey.meet(&newest); known {
		return head, true, nil
	}
	if err := b.survey.sem.acquire(ctx); err != nil { // concurrent calls would read the same messages
		return stored{}, false, failed("read blocks", err)
	}
	defer b.survey.sem.release()
	if _, seen := b.survey.snapshot(); seen > newest.seq { // another call read further, or messages were lost
		now, found, err := b.newest(ctx, b.names.all())
		if err != nil || !found {
			return stored{}, false, err
		}
		newest = now
	}
	if head, known := b.survey.meet(&newest); known {
		return head, true, nil
	}
	head, found, err := b.catchUp(ctx, newest)
	if err == nil && !found {
		head, found, err = b.quickSurvey(ctx, newest.seq)
	}
	if err == nil && !found {
		head, found, err = b.surveyNewest(ctx, newest.seq)
	}
	if err == nil && found && head.seq < newest.seq {
		b.survey.setLast(newest)
	}
	return head, found, err
}

// catchUp extends the survey up to the newest message. It returns false if a new survey
// is needed.
func (b *Backend) catchUp(ctx context.Context, newest stored) (stored, bool, error) {
	head, last := b.survey.end()
	if head.seq == 0 {
		return stored{}, false, nil
	}
	same, err := b.contains(ctx, last)
	if err != nil {
		return stored{}, false, err
	}
	// The stream may have lost messages and reused their numbers, or the survey is too far behind.
	if !same || newest.seq < last.seq || newest.seq > last.seq+maxCatchUp {
		b.reset()
		return stored{}, false, nil
	}
	if head, known := b.survey.next(&newest); known {
		return head, true, nil
	}
	l := &linker{b: b, at: head.place(), seen: last.seq, ignoreForks: true}
	err = b.readOn(ctx, l, newest.seq)
	if errors.Is(err, errReplaced) || errors.Is(err, errMissing) || err == nil && l.gap && l.forked {
		return stored{}, false, nil
	}
	head, seen := b.survey.snapshot()
	return head, seen > 0, err // reset may have been called meanwhile
}

// contains reports whether the stream still contains the message m.
func (b *Backend) contains(ctx context.Context, m stored) (bool, error) {
	now, found, err := b.block(ctx, getRequest{Seq: m.seq})
	return found && m.same(&now), err
}

// meet returns the newest block, if it is s and the last message of the survey. If a Writer of this Backend appended
// it, meet records when the server received it.
func (x *survey) meet(s *stored) (stored, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	same := x.seen == s.seq && x.head.seq == s.seq && x.head.same(s)
	if same {
		x.head.received = s.received
	}
	return x.head, same
}

// denials returns how often a read took a message for a stray because of the survey.
func (x *survey) denials() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.denied
}

// verified calls read. If read took messages for strays because of the survey, verified checks that the stream still
// contains the newest message that the survey covered: after a restore from a backup, blocks may have the numbers of
// strays. If the stream has lost that message, verified updates the survey and calls read again.
func (b *Backend) verified(ctx context.Context, read func() error) error {
	denials := b.survey.denials()
	head, last := b.survey.end()
	err := read()
	if b.survey.denials() == denials {
		return err
	}
	updated, failure := b.checkSurvey(ctx, head, last)
	if !updated {
		return cmp.Or(err, failure)
	}
	return read()
}

// checkSurvey updates the survey, which ended with the block head and the message last, if the stream has lost that
// message since then. It reports whether it has updated the survey.
func (b *Backend) checkSurvey(ctx context.Context, head, last stored) (updated bool, err error) {
	if head.seq == 0 { // there was no survey
		return false, nil
	}
	if same, err := b.contains(ctx, last); same || err != nil {
		return false, err
	}
	if _, whole, err := b.state(ctx); err != nil || last.seq < whole.from { // it has expired, or was pruned
		return false, err
	}
	b.reset()
	_, _, _, err = b.tail(ctx)
	return err == nil, err
}

package natschain

import (
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
	if head, known := b.survey.next(&newest); known {
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
	if head, known := b.survey.next(&newest); known {
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
	same, err := b.present(ctx, head.place())
	if err != nil && !errors.Is(err, errReplaced) {
		return stored{}, false, err
	}
	if same = same && last.seq <= newest.seq && newest.seq <= last.seq+maxCatchUp; same && last.seq > head.seq {
		now, found, err := b.block(ctx, getRequest{Seq: last.seq})
		if err != nil {
			return stored{}, false, err
		}
		same = found && now.received.Equal(last.received)
	}
	if !same { // the stream lost messages and may have reused their numbers, or the survey is too far behind
		b.reset()
		return stored{}, false, nil
	}
	l := &linker{b: b, at: head.place(), seen: last.seq, ignoreForks: true}
	err = b.readOn(ctx, l, newest.seq)
	if errors.Is(err, errReplaced) || errors.Is(err, errMissing) || err == nil && l.gap && l.forked {
		return stored{}, false, nil
	}
	head, _ = b.survey.snapshot()
	return head, true, err
}

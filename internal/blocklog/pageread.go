package blocklog

import (
	"errors"
	"fmt"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// enqueue queues a page to be read.
func (l *Log[B]) enqueue(p *page[B]) {
	p.state = pageQueued
	l.lane(p).queue.push(p, l.isFuture(p.after))
	l.readQueued()
}

// readQueued starts one more goroutine that reads queued pages, if there are any and fewer than pageCalls goroutines
// read pages. If too many pages are held, it does so later.
func (l *Log[B]) readQueued() {
	if l.calls < pageCalls && l.nextLane() != nil {
		l.calls++
		l.busy++
		go l.readPages()
	}
}

// readLater calls readQueued after a wait, unless such a call is already scheduled.
func (l *Log[B]) readLater(wait time.Duration) {
	if l.roomTimer != nil {
		return
	}
	l.busy++
	l.roomTimer = time.AfterFunc(min(wait, recheckTime), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.roomTimer = nil
		l.readQueued()
		l.taskDone()
	})
}

// readPages reads queued pages until no page is queued or too many pages are held.
func (l *Log[B]) readPages() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for lane := l.nextLane(); lane != nil; lane = l.nextLane() {
		p := lane.queue.pop()
		p.state = pageReading
		lane.reading++
		l.readQueued()
		known, since, exact := p.known, p.since, p.exact
		l.mu.Unlock()
		read, gone, err := l.fetch(p.after, since, known, exact)
		switch {
		case err != nil && !gone:
			l.logPage(p.after, err)
		case len(read.gaps) > 0:
			l.logPage(p.after, read.gaps[0])
		}
		l.callAll(l.finishRead(p, read, gone, err))
		l.mu.Lock()
	}
	l.calls--
	l.taskDone()
}

// fetch reads a page from the source and checks it for gaps.
func (l *Log[B]) fetch(after, since string, known shardHeads, exact bool) (read stored[B], gone bool, err error) {
	perr := guard.RunApart(func() {
		var blocks []B
		if blocks, err = l.src.Page(l.ctx, after, pageBlocks); err == nil {
			read.entries, err = l.ascending(blocks[:min(len(blocks), pageBlocks)], after)
		}
		if err == nil {
			err = l.checkPage(after, since, known, exact, &read)
		}
		gone = err != nil && l.src.Gone(err)
	})
	return read, gone, errors.Join(err, perr)
}

// ascending returns the blocks with their cursors. It returns an error if the blocks are not in ascending order or do
// not begin after the cursor after, because readers would skip blocks or receive some of them twice.
func (l *Log[B]) ascending(blocks []B, after string) ([]entry[B], error) {
	entries := make([]entry[B], 0, len(blocks))
	for _, b := range blocks {
		cursor := l.src.Cursor(b)
		if cursor <= after {
			return nil, fmt.Errorf("blocks are not in ascending order: %q follows %q", cursor, after)
		}
		entries = append(entries, entry[B]{b, cursor})
		after = cursor
	}
	return entries, nil
}

// finishRead handles the result of reading a page, and returns the wake functions of the readers that wait for the
// page.
func (l *Log[B]) finishRead(p *page[B], read stored[B], gone bool, err error) (wakes []xsync.Waker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lane(p).reading--
	l.stats.PageReads++
	err = errors.Join(err, l.recheckPage(p, &read))
	switch {
	case l.ctx.Err() != nil || len(p.waiting) == 0:
		l.finish(p)
		return nil
	case p.outdated:
		p.outdated = false
		l.enqueue(p)
		return nil
	case gone:
		p.err = err
		l.finish(p)
	case err != nil:
		l.delay(p, l.opts.MaxBackoff)
		return nil
	case len(read.gaps) > 0 && l.awaitMissing(p, read.gaps):
		return nil
	case len(read.entries) > 0:
		l.stats.PageBlocks += uint64(len(read.entries))
		l.raiseReached(read.entries[len(read.entries)-1].cursor) // before any reader receives the page
		p.stored = read
		l.finish(p)
		l.hold(p)
	case l.isFuture(p.after):
		p.state = pageParked
		l.addFuture(p)
		l.uncount(p) // its readers may wait for a long time
		return nil
	default:
		l.delay(p, l.opts.MaxBackoff)
		return nil
	}
	return p.wakes(nil)
}

func (p *page[B]) wakes(wakes []xsync.Waker) []xsync.Waker {
	for r := range p.waiting {
		wakes = r.appendWake(wakes)
	}
	return wakes
}

// delay schedules another read of a page. The wait grows with each attempt, and is at most maxWait.
func (l *Log[B]) delay(p *page[B], maxWait time.Duration) {
	p.state = pageDelayed
	p.attempt++
	l.busy++
	wait := min(maxWait, backoff(l.opts.MinBackoff, l.opts.MaxBackoff, p.attempt))
	p.timer = time.AfterFunc(wait, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.state == pageDelayed {
			l.enqueue(p)
		}
		l.taskDone()
	})
}

// stopDelay cancels the wait of a delayed page.
func (l *Log[B]) stopDelay(p *page[B]) {
	if p.state == pageDelayed && p.timer.Stop() {
		l.taskDone()
	}
}

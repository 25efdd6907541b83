package blocklog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A Reader is live, at a mark of the log, or behind: then it has a cursor alone, and pages from the source bring it
// on until its cursor is in the window.

const (
	behind     = math.MaxUint64 // number in the mark of a reader that is behind: past every block, so feeds pass it over
	pageBlocks = 100
	pageCalls  = 16 // at once
)

// page is one read of stored blocks, for all readers who wait at its cursor. The log's lock guards it; when done it
// does not change any more.
type page[B any] struct {
	after   string
	state   state
	waiting map[*Reader[B]]struct{}
	attempt int
	timer   *time.Timer // of the resting

	outdated bool // a block has turned up since the source was asked
	entries  []entry[B]
	err      error // why there is nothing after the cursor any more
}

type state int

const (
	queued  state = iota // in log.queue
	reading              // the source has been asked
	resting              // to be read again after a while: the source failed, or had nothing yet
	parked               // the source has nothing, nor has the log got that far: its blocks will tell
	done                 // has entries or err, or nobody waits any more; not in log.pages
)

// readOn searches what a reader has of its page.
func (r *Reader[B]) readOn(at mark) (Item, mark, error) {
	for len(r.stored) > 0 {
		e := r.stored[0]
		payload, err := r.evaluate(e, at)
		if err != nil {
			return Item{}, at, err
		}
		at.cursor = e.cursor
		if r.stored = r.stored[1:]; len(r.stored) == 0 {
			r.stored = nil // or the page would be kept while the next one is read
		}
		if payload != nil {
			return Item{Cursor: e.cursor, Payload: payload, Origin: OriginSource}, at, nil
		}
	}
	return Item{}, at, nil
}

// seek gives a reader that is behind, and has used its page up, something to read: a place in the window, or the next
// page. It reports false where there is neither yet: the reader is woken when it should seek again.
func (l *Log[B]) seek(r *Reader[B]) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	p := r.asked
	switch {
	case r.slot < 0 || l.ctx.Err() != nil:
		return false, ErrClosed
	case p != nil && p.err != nil:
		return false, &Lost{Cursor: p.after, Err: p.err}
	case p != nil && p.state == done && r.fresh && p.after == "" && len(p.entries) > 0 && p.entries[0].cursor > l.first:
		// It began with the chain, whose first blocks are gone: "" stands for the oldest kept, so the source cannot tell.
		r.asked, r.gap = nil, true
		return true, nil
	case p != nil && p.state == done:
		r.asked, r.stored = nil, p.entries
		return true, nil
	case l.covers(r.at.cursor):
		l.forsake(r)
		l.place(r)
		return true, nil
	case p == nil:
		l.ask(r)
	}
	return false, nil
}

// covers tells whether a cursor is in the window: what is past it is there or has still to arrive, what is not past it
// has arrived.
func (l *Log[B]) covers(cursor string) bool {
	v := l.view.Load()
	return l.positioned && v.base.cursor <= cursor && cursor <= v.newest.cursor
}

func (l *Log[B]) ahead(cursor string) bool {
	return l.positioned && cursor > l.view.Load().newest.cursor
}

// place makes a reader live again, before the first block past its cursor.
//
// The newest block may be in the window and not yet put into the reader's feed, or never to be, because the feed is
// younger. So it is not newest or delivered that say from where on the reader can leave the matches to its feed, but
// feed.matched: nothing from that number on has been put yet, and what matches there will be, with this reader
// counted, unless its cursor is past it. What is before, it evaluates by itself. Both locks are held, so neither the
// window nor the feed moves meanwhile.
func (l *Log[B]) place(r *Reader[B]) {
	v := l.view.Load()
	r.at.next = v.base.next + uint64(v.from(r.at.cursor))
	r.since = r.feed.matched
	l.behind.Add(-1)
	l.stats.CaughtUp++
}

// ask makes a reader wait for the page after its cursor.
func (l *Log[B]) ask(r *Reader[B]) {
	p := l.pages[r.at.cursor]
	if p == nil {
		p = &page[B]{after: r.at.cursor, waiting: make(map[*Reader[B]]struct{})}
		l.pages[p.after] = p
		l.enqueue(p)
	}
	p.waiting[r] = struct{}{}
	r.asked = p
}

// forsake is the end of a reader's wait. A page nobody waits for is not read; one that is being read already goes on,
// for whoever comes until then.
func (l *Log[B]) forsake(r *Reader[B]) {
	p := r.asked
	if r.asked = nil; p == nil {
		return
	}
	if delete(p.waiting, r); len(p.waiting) > 0 || p.state == reading || p.state == done {
		return
	}
	if i := slices.Index(l.queue, p); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	l.stop(p)
	l.finish(p)
}

func (l *Log[B]) finish(p *page[B]) {
	p.state = done
	delete(l.pages, p.after)
}

func (l *Log[B]) enqueue(p *page[B]) {
	p.state = queued
	l.queue = append(l.queue, p)
	if l.calls < pageCalls {
		l.calls++
		l.busy++
		go l.readPages()
	}
}

// readPages reads what is queued.
func (l *Log[B]) readPages() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && l.ctx.Err() == nil {
		p := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		p.state = reading
		l.mu.Unlock()
		entries, gone, err := l.fetch(p.after)
		if err != nil && !gone {
			l.logPage(p.after, err)
		}
		l.call(l.turnPage(p, entries, gone, err))
		l.mu.Lock()
	}
	l.calls--
	l.left()
}

// fetch asks the source.
func (l *Log[B]) fetch(after string) (entries []entry[B], gone bool, err error) {
	perr := guard(func() {
		var blocks []B
		if blocks, err = l.src.Page(l.ctx, after, pageBlocks); err != nil {
			gone = l.src.Gone(err)
			return
		}
		entries, err = l.ascending(blocks[:min(len(blocks), pageBlocks)], after)
	})
	if perr != nil {
		err = errors.Join(err, perr)
	}
	return entries, gone, err
}

// ascending trusts no blocks that are out of order: what follows them would be skipped, or come twice.
func (l *Log[B]) ascending(blocks []B, after string) ([]entry[B], error) {
	entries := make([]entry[B], 0, len(blocks))
	for _, b := range blocks {
		cursor := l.src.Cursor(b)
		if cursor <= after {
			return nil, fmt.Errorf("page is not ascending: %q comes after %q", cursor, after)
		}
		entries = append(entries, entry[B]{b, cursor})
		after = cursor
	}
	return entries, nil
}

// turnPage takes what the source said, and returns the wakes of those who wait for it.
func (l *Log[B]) turnPage(p *page[B], entries []entry[B], gone bool, err error) (wakes []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.PageReads++
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
		l.rest(p)
		return nil
	case len(entries) > 0:
		l.stats.PageBlocks += uint64(len(entries))
		l.note(entries[len(entries)-1].cursor) // before anybody has it
		p.entries = entries
		l.finish(p)
	case l.ahead(p.after):
		p.state = parked
		return nil
	default:
		l.rest(p)
		return nil
	}
	return p.wakes(nil)
}

func (p *page[B]) wakes(wakes []func()) []func() {
	for r := range p.waiting {
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return wakes
}

// rest lets a page be read again after a while.
func (l *Log[B]) rest(p *page[B]) {
	p.state = resting
	p.attempt++
	l.busy++
	p.timer = time.AfterFunc(backoff(l.opts.MinBackoff, l.opts.MaxBackoff, p.attempt), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.state == resting {
			l.enqueue(p)
		}
		l.left()
	})
}

// stop keeps a resting page from being read again.
func (l *Log[B]) stop(p *page[B]) {
	if p.state == resting && p.timer.Stop() {
		l.left()
	}
}

// nudge is for when the log has come to a new place: it appends the wakes of those waiting who can be placed now, and
// has pages read that were waiting for the log in vain.
func (l *Log[B]) nudge(wakes []func()) []func() {
	for _, p := range l.pages {
		switch {
		case l.covers(p.after):
			wakes = p.wakes(wakes)
		case p.state == parked && !l.ahead(p.after):
			l.enqueue(p)
		}
	}
	return wakes
}

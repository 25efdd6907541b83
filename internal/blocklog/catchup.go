package blocklog

import (
	"container/list"
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

// page is one read of stored blocks, for all readers who wait at its cursor, and then read it. The log's lock guards
// it; what it was read with does not change any more.
type page[B any] struct {
	after   string
	state   state
	waiting map[*Reader[B]]struct{}
	attempt int
	timer   *time.Timer   // of the resting
	queued  *list.Element // in log.queue, while it is there
	held    *list.Element // in log.held, while it is there

	inRecent, inAhead int // its places in log.queue.recent and in log.ahead, plus 1; 0 if it is not there

	known lines  // the newest block of each shard up to the cursor; nil for the first page of a catch-up
	since string // the cursor from which on known has every shard's

	outdated bool // since the source was asked, a block has turned up
	stored[B]
	err error // why there is nothing after the cursor any more
}

// stored is what a page was read with.
type stored[B any] struct {
	entries []entry[B]
	heads   lines     // the newest block of each shard up to the last of the entries
	began   string    // the cursor from which on heads has every shard's
	gaps    []pageGap // before and between the entries, ascending by their beginnings
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
func (r *Reader[B]) readOn(c *stored[B], at mark) (Item, mark, error) {
	for range atOnce {
		if len(c.entries) == 0 {
			break
		}
		e := c.entries[0]
		if g, stop := r.stopAt(c, e.cursor); stop {
			return Item{}, at, &Lost{Cursor: g.before, Err: ErrGap, number: g.number}
		}
		payload, err := r.evaluate(e, at)
		if err != nil {
			return Item{}, at, err
		}
		at.cursor = e.cursor
		if c.entries = c.entries[1:]; len(c.entries) == 0 {
			c.entries = nil // or the page would be kept while the next one is read
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
	s := l.approach(r)
	more, err := l.advance(r, s)
	if !s.found() {
		return more, err
	}
	i := slices.IndexFunc(s.gaps, r.mustKnow)
	if i < 0 {
		return l.advance(r, nil)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	if r.slot >= 0 && !r.turned && r.lost == nil {
		l.noteLasting(s.gaps[i].until)
		r.sendBack(s.gaps[i].before, l.lasting[s.gaps[i].until].number)
	}
	return true, nil
}

// advance is seek with what is to be checked before the reader is put into the window, or nil.
func (l *Log[B]) advance(r *Reader[B], s *seam[B]) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	p := r.asked
	switch {
	case r.slot < 0 || l.ctx.Err() != nil:
		return false, ErrClosed
	case r.turned:
		return true, nil
	case p != nil && p.err != nil:
		return false, &Lost{Cursor: p.after, Err: p.err}
	case p != nil && p.state == done && r.fresh && p.after == "" && len(p.entries) > 0 && p.entries[0].cursor > l.first:
		// It began with the chain, whose first blocks are gone: "" stands for the oldest kept, so the source cannot tell.
		r.asked, r.lost, r.told = nil, ErrGap, l.gaps.Load()
		l.stats.Gaps++
		return true, nil
	case p != nil && p.state == done:
		own := p.stored
		r.asked, r.catchUp = nil, &own
		return true, nil
	case l.covers(r.at.cursor, p != nil && p.state == parked):
		if l.check(s); s.found() {
			return true, nil
		}
		l.forsake(r)
		l.place(r)
		return true, nil
	case p == nil:
		l.ask(r)
	case p.state == parked && !l.isAhead(p.after): // the window has come, and moved on, before its readers did
		l.enqueue(p)
	}
	return false, nil
}

// covers reports whether a cursor is in the window: what is past it is there or has still to arrive, what is not past
// it has arrived. One that is not a block's there may be foreign: it counts only if the source has been asked about it.
func (l *Log[B]) covers(cursor string, asked bool) bool {
	v := l.view.Load()
	return l.positioned && v.base.cursor <= cursor && cursor <= v.newest.cursor &&
		(asked || cursor == v.base.cursor || v.has(cursor))
}

func (l *Log[B]) isAhead(cursor string) bool {
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
	r.since, r.catchUp = r.feed.matched, nil
	l.behind.Add(-1)
	l.stats.CaughtUp++
}

// ask makes a reader wait for the page after its cursor.
func (l *Log[B]) ask(r *Reader[B]) {
	l.letGo(r)
	if r.catchUp == nil {
		r.from = r.at.cursor
	}
	p := l.pages[r.at.cursor]
	if p == nil {
		p = &page[B]{after: r.at.cursor, since: r.at.cursor, waiting: make(map[*Reader[B]]struct{})}
		l.pages[p.after] = p
		l.expect(p)
		l.enqueue(p)
	}
	if c := r.catchUp; c != nil && c.heads != nil && c.began < p.since {
		p.known, p.since = c.heads, c.began // of all who wait, it knows most
	}
	p.waiting[r] = struct{}{}
	r.asked = p
}

// forsake is the end of a reader's wait. A page nobody waits for is not read; one that is being read already goes on,
// for whoever comes until then.
func (l *Log[B]) forsake(r *Reader[B]) {
	l.letGo(r)
	p := r.asked
	if r.asked = nil; p == nil {
		return
	}
	if delete(p.waiting, r); len(p.waiting) > 0 || p.state == reading || p.state == done {
		return
	}
	if p.queued != nil {
		l.queue.remove(p)
	}
	l.stop(p)
	l.finish(p)
}

func (l *Log[B]) finish(p *page[B]) {
	p.state = done
	delete(l.pages, p.after)
	l.ahead.remove(p)
}

func (l *Log[B]) enqueue(p *page[B]) {
	p.state = queued
	l.queue.push(p, l.isAhead(p.after))
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
	for l.queue.Len() > 0 && l.ctx.Err() == nil {
		p := l.queue.pop()
		p.state = reading
		known, since := p.known, p.since
		l.mu.Unlock()
		read, gone, err := l.fetch(p.after, since, known)
		switch {
		case err != nil && !gone:
			l.logPage(p.after, err)
		case len(read.gaps) > 0:
			l.logPage(p.after, read.gaps[0])
		}
		l.call(l.turnPage(p, read, gone, err))
		l.mu.Lock()
	}
	l.calls--
	l.left()
}

// fetch asks the source.
func (l *Log[B]) fetch(after, since string, known lines) (read stored[B], gone bool, err error) {
	perr := guard(func() {
		var blocks []B
		if blocks, err = l.src.Page(l.ctx, after, pageBlocks); err == nil {
			read.entries, err = l.ascending(blocks[:min(len(blocks), pageBlocks)], after)
		}
		if err == nil {
			read.heads, read.gaps, err = l.checkPage(after, since, known, read.entries)
			read.began = since
		}
		gone = err != nil && l.src.Gone(err)
	})
	return read, gone, errors.Join(err, perr)
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
func (l *Log[B]) turnPage(p *page[B], read stored[B], gone bool, err error) (wakes []func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.PageReads++
	err = errors.Join(err, l.judgeAnew(p, &read))
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
		l.rest(p, l.opts.MaxBackoff)
		return nil
	case len(read.gaps) > 0 && l.again(p, read.gaps):
		return nil
	case len(read.entries) > 0:
		l.stats.PageBlocks += uint64(len(read.entries))
		l.note(read.entries[len(read.entries)-1].cursor) // before anybody has it
		p.stored = read
		l.finish(p)
		l.hold(p)
	case l.isAhead(p.after):
		p.state = parked
		l.expect(p)
		return nil
	default:
		l.rest(p, l.opts.MaxBackoff)
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

// rest lets a page be read again after a while, most at the latest.
func (l *Log[B]) rest(p *page[B], most time.Duration) {
	p.state = resting
	p.attempt++
	l.busy++
	wait := min(most, backoff(l.opts.MinBackoff, l.opts.MaxBackoff, p.attempt))
	p.timer = time.AfterFunc(wait, func() {
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

package blocklog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// pageGap is a gap in stored blocks, as sequence numbers show it.
type pageGap struct {
	workchain int32
	before    string // the cursor of the block that the missing one follows
	until     string // the cursor of the block that shows the gap
	straddles bool   // it began before the catch-up did: the client may have had the missing block
	number    uint32 // counts the gaps that stay; 0 if nobody was told of this one
}

func (g pageGap) Error() string {
	return fmt.Sprintf("a block of workchain %d is missing between %q and %q", g.workchain, g.before, g.until)
}

// checkPage looks for gaps before and between the blocks of a page: a source that prunes its history while a page is
// read may leave blocks out. known are the newest blocks of each shard up to the page's cursor; heads are those up to
// its last block, which they have from the cursor since on. The first page of a catch-up has nil: then the blocks up to
// the cursor are read, with one small call.
func (l *Log[B]) checkPage(
	after, since string, known lines, entries []entry[B],
) (heads lines, gaps []pageGap, err error) {
	if l.src.Place == nil || len(entries) == 0 {
		return nil, nil, nil
	}
	heads = known.clone()
	if known == nil {
		heads = make(lines)
		if gaps, err = l.checkStart(after, entries[0], heads); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range entries {
		gaps = heads.goOn(l.src.Place(e.block), e.cursor, gaps)
	}
	for i := range gaps {
		gaps[i].straddles = gaps[i].before < since
	}
	sortGaps(gaps)
	return heads, gaps, nil
}

// judgeAnew checks a page again for those who know more and have come since the source was asked. Called with the log's
// lock held.
func (l *Log[B]) judgeAnew(p *page[B], read *stored[B]) (err error) {
	if p.since < read.began {
		read.heads, read.gaps, err = l.checkPage(p.after, p.since, p.known, read.entries)
		read.began = p.since
	}
	l.number(read.gaps)
	return err
}

// goOn makes a block the newest of its shard, and appends the gap that it shows.
func (ls lines) goOn(p Place, cursor string, gaps []pageGap) []pageGap {
	if ls.judge(p) == hole {
		gaps = append(gaps, pageGap{workchain: p.Workchain, before: ls.before(p), until: cursor})
	}
	ls.take(p, cursor)
	return gaps
}

func sortGaps(gaps []pageGap) {
	slices.SortFunc(gaps, func(a, b pageGap) int { return cmp.Compare(a.before, b.before) })
}

// startBlocks is how many blocks up to a cursor are looked at before the first page of a catch-up. A block that is
// missing right after the cursor shows if one of its shard is among them. A client that had it before is told, too: it
// cannot be told apart.
const startBlocks = 32

// checkStart checks that no block is missing between a cursor and the first block of its page, and adds the blocks up
// to the cursor to heads. While the block at the cursor is stored, none after it has been pruned, since the oldest are
// pruned first. If it is not stored, the source is asked whether the cursor is too old by now. There is nothing to check
// for "", which means the oldest block that is kept.
func (l *Log[B]) checkStart(after string, first entry[B], heads lines) (gaps []pageGap, err error) {
	if after == "" || l.src.Before == nil || l.src.Between == nil {
		return nil, nil
	}
	blocks, err := l.src.Before(l.ctx, first.block, nil, startBlocks)
	if err != nil {
		return nil, fmt.Errorf("blocks up to the cursor: %w", err)
	}
	if len(blocks) == 0 {
		if blocks, err = l.src.Between(l.ctx, after, first.block, 1); err != nil {
			return nil, err
		}
	}
	entries, err := l.ascending(blocks, "")
	if err != nil {
		return nil, fmt.Errorf("blocks up to the cursor: %w", err)
	}
	for _, e := range entries {
		switch p := l.src.Place(e.block); {
		case e.cursor >= first.cursor:
			return nil, fmt.Errorf("blocks up to the cursor: %q is not before %q", e.cursor, first.cursor)
		case e.cursor > after:
			gaps = append(gaps, pageGap{workchain: p.Workchain, before: after, until: first.cursor})
		default:
			heads.take(p, e.cursor)
		}
	}
	return gaps, nil
}

// reported tells whether a reader's client knows of a gap: it was sent back to its beginning, and resumed from there, or
// was sent back when clients had been told of the gap, and came from after its beginning. Without the latter, one that
// takes few blocks per connection would never get on. A client that was sent back to a later place, because of another
// gap, does not know of this one.
func (r *Reader[B]) reported(g pageGap) bool {
	if g.before == r.sentBack && g.before != "" {
		return true
	}
	return g.number > 0 && g.number <= r.known && (g.straddles || g.before == "")
}

// number looks up the numbers of gaps. Called with the log's lock held.
func (l *Log[B]) number(gaps []pageGap) {
	for i := range gaps {
		gaps[i].number = l.lasting[gaps[i].until].number
	}
}

// stopAt returns the first of the gaps before a block of the reader's page that its client must be told of.
func (r *Reader[B]) stopAt(c *stored[B], cursor string) (g pageGap, stop bool) {
	for ; len(c.gaps) > 0 && c.gaps[0].before < cursor; c.gaps = c.gaps[1:] {
		if r.mustKnow(c.gaps[0]) {
			return c.gaps[0], true
		}
	}
	return pageGap{}, false
}

// mustKnow reports whether a reader's client must be told of a gap.
func (r *Reader[B]) mustKnow(g pageGap) bool {
	may, _ := r.feed.mayMatch(g.workchain)
	return may && !r.reported(g)
}

// sendBack ends a reader that has found a gap in stored blocks, which has the number. Called with the feed's lock
// held.
func (r *Reader[B]) sendBack(cursor string, number uint32) {
	r.feed.fall(r, max(min(cursor, r.at.cursor), r.start))
	r.lost = ErrGap
	r.told, r.known = r.log.gaps.Load(), max(r.known, number)
	r.log.pageEnd.Add(1)
}

// again lets a page with gaps be read again, if somebody waits for it who does not know of them: what is missing may be
// stored late, or the cursor be too old by now. A gap is waited for once, whoever waits, as readers come and go; then it
// is given one more read. Called with the log's lock held.
func (l *Log[B]) again(p *page[B], gaps []pageGap) bool {
	unknown := func(g pageGap) bool {
		for r := range p.waiting {
			if !r.reported(g) {
				return true
			}
		}
		return false
	}
	if !slices.ContainsFunc(gaps, unknown) {
		return false
	}
	now, most := time.Now(), time.Duration(0)
	for _, g := range gaps {
		most = max(most, l.lasts(g.until, now.Add(healPatience)).Sub(now))
	}
	if most <= 0 && p.attempt > 0 {
		for _, g := range gaps {
			l.noteLasting(g.until)
		}
		l.number(gaps)
		return false
	}
	l.rest(p, max(l.opts.MinBackoff, min(most, healInterval)))
	return true
}

// A lasting is what is known of a gap in the source.
type lasting struct {
	from   time.Time // when it counts as one that stays
	number uint32    // counts those because of which readers have been ended; 0 if none has
}

// maxLasting bounds what is known of gaps that stay.
const maxLasting = 1024

// lasts returns from when on the gap before a block counts as one that stays. It is the given time if the gap was not
// known.
func (l *Log[B]) lasts(cursor string, from time.Time) time.Time {
	known, ok := l.lasting[cursor]
	if !ok {
		known.from = from
		l.setLasting(cursor, known)
	}
	return known.from
}

// noteLasting notes that a gap before a block was waited for in vain, and that readers are told.
func (l *Log[B]) noteLasting(cursor string) {
	number := l.lasting[cursor].number
	if number == 0 {
		number = l.lastings.Add(1)
	}
	l.setLasting(cursor, lasting{from: time.Now(), number: number})
}

func (l *Log[B]) setLasting(cursor string, g lasting) {
	if _, ok := l.lasting[cursor]; !ok && len(l.lasting) >= maxLasting {
		clear(l.lasting)
	}
	l.lasting[cursor] = g
}

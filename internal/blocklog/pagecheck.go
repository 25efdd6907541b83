package blocklog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A pageGap is a gap in stored blocks that was detected from sequence numbers. It is an error so that it can be logged.
type pageGap struct {
	workchain int32
	before    string // the cursor of the block that the missing block follows
	until     string // the cursor of the block that shows the gap
	straddles bool   // the gap begins before the catch-up, so the client may have received the missing block
	number    uint32 // its number if it is a permanent gap; 0 if no reader has ended because of it
}

func (g pageGap) Error() string {
	return fmt.Sprintf("a block in workchain %d is missing between cursors %q and %q", g.workchain, g.before, g.until)
}

// checkPage looks for gaps before and between the blocks of a page, and sets the other fields of read. Gaps occur if a
// source prunes its history while the page is read.
//
// known contains the newest block of each shard up to the page's cursor. read.heads contains the newest block of each
// shard up to the page's last block. They contain every shard that had a block after the cursor since and after the
// cursor read.began, respectively. If exact is false, known is uncertain, as for the first page of a catch-up. Then
// checkPage also reads the blocks up to the page's cursor with one small call.
//
// The page after the cursor "" begins with the oldest stored block. Blocks before that block are not missing, even if
// the log knows them.
func (l *Log[B]) checkPage(after, since string, known shardHeads, exact bool, read *stored[B]) error {
	if l.src.Place == nil || len(read.entries) == 0 {
		return nil
	}
	if after == "" {
		known, since = nil, read.entries[0].cursor
	}
	known, _ = known.upTo(after)
	heads := known.clone()
	if heads == nil {
		heads = make(shardHeads)
	}
	var gaps []pageGap
	if !exact {
		var err error
		if gaps, err = l.checkStart(after, read.entries[0], heads); err != nil {
			return err
		}
	}
	for _, e := range read.entries {
		gaps = heads.checkAndSet(l.src.Place(e.block), e.cursor, since, gaps)
	}
	for i := range gaps {
		gaps[i].straddles = gaps[i].before < since
	}
	sortGaps(gaps)
	read.heads, read.began, read.gaps = heads, since, gaps
	return nil
}

// recheckPage checks a page again if a reader that knows more heads requested the page during the read. The caller must
// hold the log's lock.
func (l *Log[B]) recheckPage(p *page[B], read *stored[B]) (err error) {
	if p.since < read.began {
		err = l.checkPage(p.after, p.since, p.known, true, read)
	}
	l.numberGaps(read.gaps)
	return err
}

// checkAndSet makes a block the newest block of its shard. If the block shows a gap, checkAndSet appends the gap to
// gaps. ls contains every shard that had a block after the cursor since.
func (ls shardHeads) checkAndSet(p Place, cursor, since string, gaps []pageGap) []pageGap {
	if ls.check(p) == verdictGap {
		gaps = append(gaps, pageGap{workchain: p.Workchain, before: ls.before(p, since), until: cursor})
	}
	ls.set(p, cursor)
	return gaps
}

func sortGaps(gaps []pageGap) {
	slices.SortFunc(gaps, func(a, b pageGap) int { return cmp.Compare(a.before, b.before) })
}

// startBlocks is the number of blocks up to the cursor that are read before the first page of a catch-up. A block that
// is missing right after the cursor is noticed if its shard has one of these blocks or a head that the log knows. The
// reader of a client that has received the missing block ends too, because the log cannot know that.
const startBlocks = 32

// checkStart checks that no block is missing between the cursor after and first, the first block of its page. It adds
// the blocks up to the cursor to heads, for shards that have no head.
//
// The source prunes the oldest blocks first. So if a block up to the cursor is still stored, no block after the cursor
// has been pruned. If no block before the page is stored, checkStart calls Between, which fails if the cursor is too
// old. For the cursor "", which means that the oldest stored block is next, there is nothing to check.
func (l *Log[B]) checkStart(after string, first entry[B], heads shardHeads) (gaps []pageGap, err error) {
	if after == "" || l.src.Before == nil || l.src.Between == nil {
		return nil, nil
	}
	blocks, err := l.src.Before(l.ctx, first.block, nil, startBlocks)
	if err != nil {
		return nil, fmt.Errorf("reading the blocks up to the cursor: %w", err)
	}
	if len(blocks) == 0 {
		if blocks, err = l.src.Between(l.ctx, after, first.block, 1); err != nil {
			return nil, err
		}
	}
	entries, err := l.ascending(blocks, "")
	if err != nil {
		return nil, fmt.Errorf("reading the blocks up to the cursor: %w", err)
	}
	stored := make(shardHeads)
	for _, e := range entries {
		switch p := l.src.Place(e.block); {
		case e.cursor >= first.cursor:
			return nil, fmt.Errorf("reading the blocks before %q: unexpected block %q", first.cursor, e.cursor)
		case e.cursor > after:
			gaps = append(gaps, pageGap{workchain: p.Workchain, before: after, until: first.cursor})
		default:
			stored.set(p, e.cursor)
		}
	}
	heads.fill(stored)
	return gaps, nil
}

// reported reports whether a gap counts as reported to the reader's client. It does in two cases:
//
//   - The client was sent back to the beginning of the gap and resumed there.
//   - The client was sent back because of this gap or a permanent gap with a higher number, and resumed after the
//     beginning of this gap. Without this case, a client that reads few blocks per connection would never get past the
//     gap.
//
// The gap does not count as reported to a client that was sent back only to a later position, because of another gap.
func (r *Reader[B]) reported(g pageGap) bool {
	if g.before == r.sentBackTo() && g.before != "" {
		return true
	}
	return g.number > 0 && g.number <= r.reportedPermanent && (g.straddles || g.before == "")
}

// numberGaps sets the number of each gap to its number among the permanent gaps. The caller must hold the log's lock.
func (l *Log[B]) numberGaps(gaps []pageGap) {
	for i := range gaps {
		gaps[i].number = l.permanentGaps[gaps[i].until].number
	}
}

// firstGapBefore returns the first of the page's gaps that concerns the reader and begins before the block with the
// cursor.
func (r *Reader[B]) firstGapBefore(c *stored[B], cursor string) (g pageGap, stop bool) {
	for ; len(c.gaps) > 0 && c.gaps[0].before < cursor; c.gaps = c.gaps[1:] {
		if r.concernedBy(c.gaps[0]) {
			return c.gaps[0], true
		}
	}
	return pageGap{}, false
}

// concernedBy reports whether a reader must end because of a gap.
func (r *Reader[B]) concernedBy(g pageGap) bool {
	may, _ := r.group.mayMatch(g.workchain)
	return may && !r.reported(g)
}

// endWithGap ends a reader that has found a permanent gap in stored blocks. number is the gap's number among the
// permanent gaps. The caller must hold the group's lock.
func (r *Reader[B]) endWithGap(cursor string, number uint32) {
	r.group.fall(r, max(min(cursor, r.at.cursor), r.start))
	r.lost = ErrGap
	r.reportedGap, r.reportedPermanent = r.group.log.gaps.Load(), max(r.reportedPermanent, number)
	r.group.log.pageEnd.Add(1)
}

// awaitMissing schedules another read of a page if a gap in it has not been reported to all waiting readers. It reports
// whether it did. The next read may return the missing blocks, because they were stored late, or fail because the
// cursor has become too old. The log waits for each gap only once, even if readers come and go, and reads the page one
// more time after the wait. The caller must hold the log's lock.
func (l *Log[B]) awaitMissing(p *page[B], gaps []pageGap) bool {
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
		most = max(most, l.permanentFrom(g.until, now.Add(repairTimeout)).Sub(now))
	}
	if most <= 0 && p.attempt > 0 {
		for _, g := range gaps {
			l.addPermanent(g.until)
		}
		l.numberGaps(gaps)
		return false
	}
	l.delay(p, max(l.opts.MinBackoff, min(most, repairInterval)))
	return true
}

// A permanentGap is the state of a gap in stored blocks.
type permanentGap struct {
	from   time.Time // the time from which the gap counts as permanent: the log does not wait for its blocks any more
	number uint32    // number of the gap in the order in which gaps ended readers; 0 if it has ended none
}

// maxPermanentGaps is the maximum number of gaps in Log.permanentGaps. If it is reached, a new gap replaces all of
// them.
const maxPermanentGaps = 1024

// permanentFrom returns the time from which the gap before the block with the cursor counts as permanent. If the gap
// was not known, permanentFrom records the given time and returns it.
func (l *Log[B]) permanentFrom(cursor string, from time.Time) time.Time {
	known, ok := l.permanentGaps[cursor]
	if !ok {
		known.from = from
		l.setPermanent(cursor, known)
	}
	return known.from
}

// addPermanent records that the gap before the block with the cursor counts as permanent from now on, and that readers
// end because of it.
func (l *Log[B]) addPermanent(cursor string) {
	number := l.permanentGaps[cursor].number
	if number == 0 {
		number = l.permanentNumber.Add(1)
	}
	l.setPermanent(cursor, permanentGap{from: time.Now(), number: number})
}

func (l *Log[B]) setPermanent(cursor string, g permanentGap) {
	if _, ok := l.permanentGaps[cursor]; !ok && len(l.permanentGaps) >= maxPermanentGaps {
		clear(l.permanentGaps)
	}
	l.permanentGaps[cursor] = g
}

package blocklog

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A pageGap is a gap in stored blocks that sequence numbers show.
type pageGap struct {
	workchain int32
	before    string // the cursor of the block that the missing one follows
	until     string // the cursor of the block that shows the gap
	straddles bool   // it begins before the catch-up: the client may have received the missing block
	number    uint32 // number among the lasting gaps; 0 if no reader has ended because of it
}

func (g pageGap) Error() string {
	return fmt.Sprintf("a block of workchain %d is missing between %q and %q", g.workchain, g.before, g.until)
}

// checkPage looks for gaps before and between the blocks of a page: a source that prunes its history during the read
// may leave out blocks.
//
// known contains the newest block of each shard up to the page's cursor, and heads those up to the page's last block;
// both are complete from the position since on. If known is not exact, as for the first page of a catch-up, checkPage
// reads the blocks up to the cursor, with one small call.
func (l *Log[B]) checkPage(
	after, since string, known shardHeads, exact bool, entries []entry[B],
) (heads shardHeads, gaps []pageGap, err error) {
	if l.src.Place == nil || len(entries) == 0 {
		return nil, nil, nil
	}
	if heads = known.clone(); heads == nil {
		heads = make(shardHeads)
	}
	if !exact {
		if gaps, err = l.checkStart(after, entries[0], heads); err != nil {
			return nil, nil, err
		}
	}
	for _, e := range entries {
		gaps = heads.checkAndSet(l.src.Place(e.block), e.cursor, gaps)
	}
	for i := range gaps {
		gaps[i].straddles = gaps[i].before < since
	}
	sortGaps(gaps)
	return heads, gaps, nil
}

// recheckPage checks a page again if a reader with more heads has requested it during the read. Called with the log's
// lock held.
func (l *Log[B]) recheckPage(p *page[B], read *stored[B]) (err error) {
	if p.since < read.began {
		read.heads, read.gaps, err = l.checkPage(p.after, p.since, p.known, true, read.entries)
		read.began = p.since
	}
	l.numberGaps(read.gaps)
	return err
}

// checkAndSet makes a block the head of its shard, and appends the gap that the block shows.
func (ls shardHeads) checkAndSet(p Place, cursor string, gaps []pageGap) []pageGap {
	if ls.check(p) == verdictGap {
		gaps = append(gaps, pageGap{workchain: p.Workchain, before: ls.before(p), until: cursor})
	}
	ls.set(p, cursor)
	return gaps
}

func sortGaps(gaps []pageGap) {
	slices.SortFunc(gaps, func(a, b pageGap) int { return cmp.Compare(a.before, b.before) })
}

// startBlocks is the number of blocks up to a cursor that are read before the first page of a catch-up. A block that is
// missing right after the cursor shows if one of these blocks, or a head that the log knows, is of its shard. A client
// that had received the missing block ends too: it cannot be distinguished.
const startBlocks = 32

// checkStart checks that no block is missing between a cursor and the first block of its page, and adds the blocks up
// to the cursor to heads, for shards that have no head.
//
// The oldest blocks are pruned first. So if the block at the cursor is stored, no block after it has been pruned. If it
// is not stored, the source is asked whether the cursor is too old. For the cursor "", which means the oldest stored
// block, there is nothing to check.
func (l *Log[B]) checkStart(after string, first entry[B], heads shardHeads) (gaps []pageGap, err error) {
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
	stored := make(shardHeads)
	for _, e := range entries {
		switch p := l.src.Place(e.block); {
		case e.cursor >= first.cursor:
			return nil, fmt.Errorf("blocks up to the cursor: %q is not before %q", e.cursor, first.cursor)
		case e.cursor > after:
			gaps = append(gaps, pageGap{workchain: p.Workchain, before: after, until: first.cursor})
		default:
			stored.set(p, e.cursor)
		}
	}
	heads.fill(stored)
	return gaps, nil
}

// reported reports whether a reader's client knows of a gap. It does if it was sent back to the gap's beginning and
// resumed there. It also does if it was sent back after the gap had been reported to any client, and resumed after the
// gap's beginning: otherwise a client that takes few blocks per connection would never pass the gap. A client that was
// sent back to a later place, because of another gap, does not know of this one.
func (r *Reader[B]) reported(g pageGap) bool {
	if g.before == r.sentBack && g.before != "" {
		return true
	}
	return g.number > 0 && g.number <= r.reportedLasting && (g.straddles || g.before == "")
}

// numberGaps sets the numbers of gaps. Called with the log's lock held.
func (l *Log[B]) numberGaps(gaps []pageGap) {
	for i := range gaps {
		gaps[i].number = l.lastingGaps[gaps[i].until].number
	}
}

// firstGapBefore returns the first gap before a block of the reader's page that concerns the reader.
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

// endWithGap ends a reader that has found a lasting gap with this number in stored blocks. Called with the group's lock
// held.
func (r *Reader[B]) endWithGap(cursor string, number uint32) {
	r.group.fall(r, max(min(cursor, r.at.cursor), r.start))
	r.lost = ErrGap
	r.reportedGap, r.reportedLasting = r.log.gaps.Load(), max(r.reportedLasting, number)
	r.log.pageEnd.Add(1)
}

// awaitMissing schedules another read of a page with gaps if a waiting reader does not know of them, and reports
// whether it did: the missing blocks may be stored late, or the cursor may have become too old. The wait for a gap
// happens once, even if readers come and go. After it, the page is read one more time. Called with the log's lock held.
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
		most = max(most, l.lastsFrom(g.until, now.Add(repairTimeout)).Sub(now))
	}
	if most <= 0 && p.attempt > 0 {
		for _, g := range gaps {
			l.addLasting(g.until)
		}
		l.numberGaps(gaps)
		return false
	}
	l.delay(p, max(l.opts.MinBackoff, min(most, repairInterval)))
	return true
}

// A lastingGap is a gap in the source.
type lastingGap struct {
	from   time.Time // the time from which the gap counts as lasting
	number uint32    // counts the gaps because of which readers have ended; 0 if none has
}

// maxLasting is the maximum number of gaps in Log.lastingGaps.
const maxLasting = 1024

// lastsFrom returns the time from which the gap before a block counts as lasting: the given time if the gap was not
// known.
func (l *Log[B]) lastsFrom(cursor string, from time.Time) time.Time {
	known, ok := l.lastingGaps[cursor]
	if !ok {
		known.from = from
		l.setLasting(cursor, known)
	}
	return known.from
}

// addLasting records that the wait for a gap before a block has ended, and that readers end because of it.
func (l *Log[B]) addLasting(cursor string) {
	number := l.lastingGaps[cursor].number
	if number == 0 {
		number = l.lastingNumber.Add(1)
	}
	l.setLasting(cursor, lastingGap{from: time.Now(), number: number})
}

func (l *Log[B]) setLasting(cursor string, g lastingGap) {
	if _, ok := l.lastingGaps[cursor]; !ok && len(l.lastingGaps) >= maxLasting {
		clear(l.lastingGaps)
	}
	l.lastingGaps[cursor] = g
}

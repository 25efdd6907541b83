package chaingql

import (
	"context"
	"errors"
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// A masterRange holds the numbers of masterchain blocks that delimit a range. A negative number means null.
type masterRange struct{ start, end int64 }

const none = -1

// These constants limit the search for one end of a range of times.
const (
	searchCalls = 24  // calls of the Backend
	searchPage  = 50  // if at most this many blocks are left to search, they are read as a page
	searchRest  = 500 // the maximum size of that page, if no call is left to make it smaller
	scanPages   = 8   // maximum number of pages to read for that end
	scanPage    = 100 // blocks in such a page
)

var errSearch = errors.New("chaingql: the range of masterchain blocks was not found with 24 calls of the Backend")

func unixTime(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }

func (r *resolvers) masterSeqNoRange(ctx context.Context, src any, args plan.Args) (any, error) {
	start, isStart := args[0].(int)
	end, isEnd := args[1].(int)
	if isStart && isEnd && start > end {
		return nil, badInput("time_start should not be greater than time_end")
	}
	c := callOf(src)
	c.final = false
	found := &masterRange{none, none}
	var err error
	if isStart {
		s := &search{r: r, call: c, left: searchCalls, reserved: 1}
		if found.start, err = s.start(ctx, int64(start)); err != nil {
			return nil, err
		}
	}
	if isEnd {
		s := &search{r: r, call: c, left: searchCalls, reserved: 3}
		if found.end, err = s.end(ctx, int64(end)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// masterRangeCost returns the cost of finding a range of times: that of one search for each end.
func (r *resolvers) masterRangeCost(args plan.Args) plan.Cost {
	start, end := plan.Cost{Calls: searchCalls, Blocks: searchCalls + searchRest},
		plan.Cost{Calls: searchCalls, Blocks: searchCalls + searchRest + scanPages*scanPage}
	if r.times != nil {
		start, end = plan.Cost{Calls: 3, Blocks: 3}, plan.Cost{Calls: 2 + scanPages, Blocks: 2 + scanPages*scanPage}
	}
	var cost plan.Cost
	if args == nil || args[0] != nil {
		cost = start
	}
	if args == nil || args[1] != nil {
		cost.Calls, cost.Blocks = cost.Calls+end.Calls, cost.Blocks+end.Blocks
	}
	return cost
}

// A search finds one end of a range of times. Pages and blocks that are in the window need no call of the Backend, but
// they are counted like calls.
type search struct {
	r        *resolvers
	call     *call
	left     int // calls that may still be made
	reserved int // calls that must be left when the block has been found
}

// start returns the number of the first masterchain block that was generated at time t or later. It returns the next
// number if there is none yet, and none if earlier blocks may have been pruned.
func (s *search) start(ctx context.Context, t int64) (int64, error) {
	newest, err := s.master(ctx, pageQuery{last: 1}) // before the search: later, it may be at t already
	switch {
	case err != nil || newest == nil:
		return none, err
	case newest.Time.Unix() < t:
		return int64(newest.SeqNo) + 1, nil
	}
	b, err := s.first(ctx, t)
	if err != nil || b == nil {
		return none, err
	}
	if b.SeqNo != 1 {
		before, err := s.master(ctx, pageQuery{before: b.Cursor, last: 1})
		if err != nil || before == nil {
			return none, err
		}
	}
	return int64(b.SeqNo), nil
}

// end returns the number of the first masterchain block that was generated at time t or later, as were all blocks of
// other workchains between it and the masterchain block before. It returns none if there is no such block yet.
func (s *search) end(ctx context.Context, t int64) (int64, error) {
	b, err := s.first(ctx, t)
	if err != nil || b == nil {
		return none, err
	}
	before, err := s.master(ctx, pageQuery{before: b.Cursor, last: 1})
	if err != nil {
		return none, err
	}
	q := pageQuery{first: scanPage}
	if before != nil {
		q.after = before.Cursor
	}
	early := false // a block of another workchain was generated before t
	for range scanPages {
		page, err := s.page(ctx, q)
		if err != nil {
			return none, err
		}
		n := page.Len()
		for i := range n {
			switch b := page.At(i); {
			case b.Workchain != masterchain:
				early = early || b.Time.Unix() < t
			case early:
				early = false
			default:
				return int64(b.SeqNo), nil
			}
		}
		if n < scanPage {
			return none, nil
		}
		q.after = page.At(n - 1).Cursor
	}
	return none, errSearch
}

// first returns the first masterchain block that was generated at time t or later, or nil if there is none.
func (s *search) first(ctx context.Context, t int64) (*Block, error) {
	if b, ok := s.recent(t); ok {
		return b, nil
	}
	if s.r.times != nil {
		s.left--
		return s.r.find(ctx, s.call, lookup{by: byTime, number: t}, "")
	}
	if s.r.numbers == nil {
		return nil, errLookup
	}
	high, err := s.master(ctx, pageQuery{last: 1})
	if err != nil || high == nil || high.Time.Unix() < t {
		return nil, err
	}
	low, err := s.master(ctx, pageQuery{first: 1})
	if err != nil || low == nil || low.Time.Unix() >= t {
		return low, err
	}
	for high.SeqNo-low.SeqNo > searchPage && s.left > s.reserved+1 {
		number := guess(low, high, t, s.left-s.reserved-1)
		s.left--
		b, err := s.r.find(ctx, s.call, lookup{by: bySeqNo, in: masterShard, number: number}, "")
		switch {
		case err != nil:
			return nil, err
		case b == nil: // pruned in the meantime
			return s.first(ctx, t)
		case b.Time.Unix() < t:
			low = b
		default:
			high = b
		}
	}
	n := int(min(high.SeqNo-low.SeqNo, searchRest))
	page, err := s.page(ctx, pageQuery{in: masters, after: low.Cursor, first: n})
	if err != nil {
		return nil, err
	}
	i := firstAt(&page, t)
	if i == page.Len() {
		return nil, errSearch
	}
	return page.At(i), nil
}

// firstAt returns the index of the first block that was generated at time t or later.
func firstAt(blocks *blocklog.List[Block], t int64) int {
	return sort.Search(blocks.Len(), func(i int) bool { return blocks.At(i).Time.Unix() >= t })
}

// recent is like first, but searches only the window. ok reports whether the window is sufficient to answer.
func (s *search) recent(t int64) (first *Block, ok bool) {
	w := s.r.chainOf(s.call).window()
	blocks := w.Select(masters)
	switch i := firstAt(&blocks, t); {
	case !w.Live || i == 0 && w.After != "":
		return nil, false
	case i < blocks.Len():
		return blocks.At(i), true
	}
	return nil, true
}

// guess returns the block number at which to continue the search for time t. It interpolates between the numbers and
// times of low and high, and moves the result a little towards the middle, so that t is equally likely to be before and
// after it. Because the intervals between blocks vary, guess stays close enough to the middle for the search to end
// within the given number of calls, unless there are too many blocks.
func guess(low, high *Block, t int64, calls int) int64 {
	from, to := int64(low.SeqNo), int64(high.SeqNo)
	span, middle := to-from, from+(to-from)/2
	share := float64(t-low.Time.Unix()) / float64(high.Time.Unix()-low.Time.Unix())
	number := from + int64(share*float64(span))
	step := int64(math.Sqrt(float64(span)))
	if number < middle {
		number = min(number+step, middle)
	} else {
		number = max(number-step, middle)
	}
	for _, last := range []int64{searchPage, searchRest} {
		if span <= last<<calls {
			reach := last << (calls - 1)
			number = min(max(number, to-reach), from+reach)
			break
		}
	}
	return min(max(number, from+1), to-1)
}

// master returns the only block of a page of the masterchain, or nil if the page is empty.
func (s *search) master(ctx context.Context, q pageQuery) (*Block, error) {
	q.in = masters
	page, err := s.page(ctx, q)
	if err != nil || page.Len() == 0 {
		return nil, err
	}
	return page.At(0), nil
}

func (s *search) page(ctx context.Context, q pageQuery) (page blocklog.List[Block], err error) {
	if s.left == 0 {
		return page, errSearch
	}
	s.left--
	page, err = s.r.read(ctx, s.call, &q)
	return page, err
}

func appendNumber(dst []byte, number int64) []byte {
	if number < 0 {
		return append(dst, "null"...)
	}
	return strconv.AppendInt(dst, number, 10)
}

package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"
)

var (
	errDown = errors.New("the source is down")
	errGone = errors.New("the history is gone")
)

// A chain is a scripted source. Its blocks are the numbers from 1 on.
type chain struct {
	mu      sync.Mutex
	newest  int
	oldest  int           // a Follow that needs a block before this one fails with errGone
	down    error         // returned by Recent and Follow at once
	replay  int           // number of blocks that each Follow repeats
	lie     func(int) int // returns a wrong block that Follow yields after the given one, or 0
	change  chan struct{} // closed at the next change
	recents int           // maximum number of blocks that Recent returns
	heads   int           // number of calls of Recent
	answers []int         // newest block that each call of Recent returned
	gone    int           // number of the next Follows that fail with errGone, for any cursor
	follows []string      // cursor of each Follow
	running int           // number of Follow calls that are running

	pageDown  error         // returned by Page
	lag       int           // number of newest blocks that Page does not return yet
	pageTakes time.Duration // duration of each call of Page
	pages     []string      // cursor of each call of Page
	probes    int           // number of calls of Page for one block, which follow a silence
	paging    int           // number of Page calls that are running
	most      int           // maximum number of concurrent calls of Page
}

func newChain(newest int) *chain {
	return &chain{newest: newest, oldest: 1, recents: 1, change: make(chan struct{})}
}

// cursors contains prepared cursors, because the tests use millions of them.
var cursors = func() (all [16384]string) {
	for n := range all[1:] {
		all[n+1] = fmt.Sprintf("%06d", n+1)
	}
	return all
}()

func cursorOf(n int) string {
	if n < len(cursors) {
		return cursors[max(n, 0)]
	}
	return fmt.Sprintf("%06d", n)
}

func (c *chain) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.change)
	c.change = make(chan struct{})
}

func (c *chain) grow(n int)      { c.set(func() { c.newest += n }) }
func (c *chain) fail(err error)  { c.set(func() { c.down = err }) }
func (c *chain) paged() int      { c.mu.Lock(); defer c.mu.Unlock(); return len(c.pages) }
func (c *chain) asked() []string { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.follows) }

func (c *chain) source() Source[int] {
	return Source[int]{
		Recent: c.recent, Follow: c.follow, Page: c.page, Cursor: cursorOf,
		Gone: func(err error) bool { return errors.Is(err, errGone) },
	}
}

func (c *chain) recent(_ context.Context, n int) (blocks []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads++
	if c.down != nil {
		return nil, c.down
	}
	c.answers = append(c.answers, c.newest)
	for b := max(1, c.oldest, c.newest-min(n, c.recents)+1); b <= c.newest; b++ {
		blocks = append(blocks, b)
	}
	return blocks, nil
}

func (c *chain) follow(ctx context.Context, after string) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		asked, _ := strconv.Atoi(after)
		c.mu.Lock()
		at := max(asked-c.replay, 0)
		c.follows = append(c.follows, after)
		c.running++
		gone := c.gone > 0
		c.gone = max(0, c.gone-1)
		c.mu.Unlock()
		defer func() { c.mu.Lock(); c.running--; c.mu.Unlock() }()
		for {
			c.mu.Lock()
			newest, oldest, down, lie, change := c.newest, c.oldest, c.down, c.lie, c.change
			c.mu.Unlock()
			switch {
			case gone:
				yield(0, errGone)
				return
			case down != nil:
				yield(0, down)
				return
			case at+1 < oldest:
				yield(0, errGone)
				return
			case at < newest:
				at++
				if !yield(at, nil) {
					return
				}
				if lie == nil {
					continue
				}
				if n := lie(at); n > 0 && !yield(n, nil) {
					return
				}
			default:
				select {
				case <-change:
				case <-ctx.Done():
					yield(0, ctx.Err())
					return
				}
			}
		}
	}
}

func (c *chain) page(ctx context.Context, after string, n int) (blocks []int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n == 1 {
		c.probes++
	} else {
		c.pages = append(c.pages, after)
		c.paging++
		c.most = max(c.most, c.paging)
		defer func() { c.paging-- }()
	}
	if c.pageTakes > 0 {
		c.mu.Unlock()
		select {
		case <-time.After(c.pageTakes):
		case <-ctx.Done():
		}
		c.mu.Lock()
	}
	at, ok := numberAfter(after)
	switch {
	case !ok:
		return nil, fmt.Errorf("foreign cursor: %w", errGone)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case c.pageDown != nil:
		return nil, c.pageDown
	case at < c.oldest:
		return nil, fmt.Errorf("page: %w", errGone)
	}
	for ; at <= c.newest-c.lag && len(blocks) < n; at++ {
		blocks = append(blocks, at)
	}
	return blocks, nil
}

// numberAfter returns the first block after a cursor. The cursor may be between the cursors of two blocks.
func numberAfter(cursor string) (int, bool) {
	n, err := strconv.Atoi(cursor[:min(len(cursor), 6)])
	return n + 1, err == nil || cursor == ""
}

// between returns a cursor between those of blocks n and n+1.
func between(n int) string { return fmt.Sprintf("%06d+", n) }

// every returns an Eval that matches the blocks with numbers divisible by n.
func every(n int) func(int) []byte {
	return func(b int) []byte {
		if b%n != 0 {
			return nil
		}
		return []byte(strconv.Itoa(b))
	}
}

// key returns the key of readers with the Eval every(n).
func key(n int) string { return "every " + strconv.Itoa(n) }

package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
)

var (
	errDown = errors.New("source is down")
	errGone = errors.New("history is gone")
)

// chain is a scripted source. Its blocks are numbers from 1 on.
type chain struct {
	mu       sync.Mutex
	newest   int
	oldest   int           // Follow from before it fails with errGone
	down     error         // what Head and Follow fail with, at once
	replay   int           // how many blocks too early each Follow begins
	lie      func(int) int // a block to yield after the given one, 0 for none
	change   chan struct{} // closed at the next change
	heads    int
	answered int      // the head last told
	follows  []string // the cursor of each Follow
	running  int
}

func newChain(newest int) *chain {
	return &chain{newest: newest, oldest: 1, change: make(chan struct{})}
}

func cursorOf(n int) string {
	if n <= 0 {
		return ""
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
func (c *chain) asked() []string { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.follows) }

func (c *chain) source() Source[int] {
	return Source[int]{Head: c.head, Follow: c.follow, Cursor: cursorOf, Gone: func(err error) bool { return errors.Is(err, errGone) }}
}

func (c *chain) head(context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heads++
	if c.down != nil {
		return "", c.down
	}
	c.answered = c.newest
	return cursorOf(c.newest), nil
}

func (c *chain) follow(ctx context.Context, after string) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		asked, _ := strconv.Atoi(after)
		c.mu.Lock()
		at := max(asked-c.replay, 0)
		c.follows = append(c.follows, after)
		c.running++
		c.mu.Unlock()
		defer func() { c.mu.Lock(); c.running--; c.mu.Unlock() }()
		for {
			c.mu.Lock()
			newest, oldest, down, lie, change := c.newest, c.oldest, c.down, c.lie, c.change
			c.mu.Unlock()
			switch {
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

// every matches the blocks divisible by n.
func every(n int) func(int) []byte {
	return func(b int) []byte {
		if b%n != 0 {
			return nil
		}
		return []byte(strconv.Itoa(b))
	}
}

func key(n int) string { return "every " + strconv.Itoa(n) }

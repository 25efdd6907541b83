package blocklog

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Readers join at cursors before, at and after a block while this block is in the window and is being delivered to the
// groups. Some of their groups have received the block, one is receiving it, and others will receive it or never will.
func TestBlockBeingDeliveredReachesResumedReadersOnce(t *testing.T) {
	for odd := range 2 { // readers with an odd or even number call Next during the delivery, the others after it
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			l := open(t, c, Options[int]{})
			var readers, live []*Reader[int]
			var starts []string
			had := map[int]int{}
			joinDuringDelivery := func() {
				for _, key := range []string{"first", "second", "third", "new"} {
					for _, after := range []string{
						cursorOf(3), between(3), cursorOf(4), between(4), cursorOf(5), between(5),
					} {
						r, _ := l.Join(Interest[int]{Key: key, After: &after, Eval: every(1)})
						readers, starts = append(readers, r), append(starts, after)
						before := r.Cursor()
						if len(readers)%2 == odd {
							continue
						}
						item, err := r.Next()
						if err != nil || item.Payload != nil && item.Cursor <= after || r.Cursor() < before {
							t.Errorf("a reader of group %q after %q received %v and error %v, and Cursor is %q",
								key, after, item, err, r.Cursor())
						} else if item.Payload != nil {
							had[len(readers)-1]++ // it must be the first block, as the others are checked below
						}
					}
				}
			}
			for i, key := range []string{"first", "second", "third"} {
				r, _ := l.Join(Interest[int]{Key: key, Eval: func(b int) []byte {
					if b == 5 && i == 1 && readers == nil {
						joinDuringDelivery()
					}
					return every(1)(b)
				}})
				live = append(live, r)
			}
			synctest.Wait()
			c.grow(4)
			synctest.Wait()
			c.grow(1)
			synctest.Wait()
			for i, r := range readers {
				if r.Cursor() < starts[i] {
					t.Errorf("Cursor is %q, want at least the start %q", r.Cursor(), starts[i])
				}
			}
			c.grow(2)
			synctest.Wait()
			for i, r := range readers {
				from := []int{3, 3, 4, 4, 5, 5}[i%6]
				expectAll(t, r, upTo(from+had[i]+1, 7, 1)...)
				if r.Cursor() != cursorOf(7) {
					t.Errorf("Cursor is %q, want that of block 7", r.Cursor())
				}
			}
			for _, r := range live {
				expect(t, r, upTo(1, 7, 1)...)
			}
			want := 6
			if odd == 1 { // a cursor between two blocks may be of another chain, so a page is requested first
				want = 0
			}
			if len(had) != want {
				t.Errorf("%d readers received a block at once, want %d", len(had), want)
			}
			for _, g := range l.groups {
				if len(g.items) > 0 {
					t.Errorf("the group keeps %d items after all readers have read them, want 0", len(g.items))
				}
			}
		})
	}
}

func TestReaderWithFutureCursorWaitsUntilTheLogReachesIt(t *testing.T) {
	for _, after := range []string{cursorOf(15), between(15)} {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(10)
			l := openStarted(t, c, Options[int]{})
			r, same := resume(t, l, after, 1), resume(t, l, after, 5)
			expectAll(t, r)
			expectAll(t, same)
			time.Sleep(time.Hour)
			expect(t, r)
			if !slices.Equal(c.pages, []string{after}) {
				t.Errorf("pages after %q were read, want one to check whether the source knows the cursor", c.pages)
			}
			for range 5 {
				c.grow(1)
				synctest.Wait()
				expect(t, r)
				expect(t, same)
			}
			if r.Cursor() != after {
				t.Errorf("Cursor is %q, want the start %q", r.Cursor(), after)
			}
			c.grow(5)
			synctest.Wait()
			expectAll(t, r, 16, 17, 18, 19, 20)
			expectAll(t, same, 20)
			if s := l.Stats(); s.CaughtUp != 2 || len(c.pages) != 1 {
				t.Errorf("stats are %+v after pages after %q, want 2 readers that caught up with one page", s, c.pages)
			}
		})
	}
}

func TestReaderWithFutureCursorContinuesAfterHistoryIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := openStarted(t, c, Options[int]{})
		r := resume(t, l, cursorOf(15), 1)
		expectAll(t, r)
		c.set(func() { c.gone, c.down = 2, errDown })
		time.Sleep(time.Minute)
		c.set(func() { c.newest, c.down = 100, nil }) // the log continues from block 100
		time.Sleep(time.Minute)
		expectAll(t, r, upTo(16, 100, 1)...)
		c.grow(1)
		synctest.Wait()
		expect(t, r, 101)
	})
}

func TestWaitingReaderBecomesLiveWhenTheLogHasAPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		c.fail(errDown)
		l := open(t, c, Options[int]{MinBackoff: time.Hour})
		l.Start()
		time.Sleep(time.Minute)
		woken := 0
		at := cursorOf(10)
		r, _ := l.Join(Interest[int]{Key: key(1), After: &at, Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
		expectAll(t, r) // the source has no block after the cursor and is not called again for an hour
		c.fail(nil)
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if woken != 1 || len(c.pages) != 1 {
			t.Errorf("the reader was woken %d times and pages after %q were read, want one of each", woken, c.pages)
		}
		expect(t, r)
		if s := l.Stats(); s.CaughtUp != 1 || s.CatchingUp != 0 {
			t.Errorf("got stats %+v, want one reader that caught up", s)
		}
		c.grow(1)
		synctest.Wait()
		expect(t, r, 11)
	})
}

func TestReadersContinueAfterTheLogLostItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var readers []*Reader[int]
		for i := range 4 {
			readers = append(readers, join(t, l, 1+i/2))
		}
		synctest.Wait()
		c.grow(100)
		synctest.Wait()
		for n, r := range readers { // one reader of each group reads all blocks, the other only the first
			for range 100 * (n % 2) {
				r.Next()
			}
			r.Next()
		}
		c.set(func() { c.gone, c.down = 2, errDown })
		c.grow(50)
		time.Sleep(time.Minute)
		if s := l.Stats(); s.CatchingUp != 4 || s.Readers != 4 || s.Groups != 2 {
			t.Errorf("got stats %+v, want 4 readers that catch up in 2 groups", s)
		}
		for _, g := range l.groups {
			if len(g.items) > 0 {
				t.Errorf("the group keeps %d items although no reader is live, want 0", len(g.items))
			}
		}
		c.fail(nil)
		time.Sleep(time.Minute)
		c.grow(50) // the window contains blocks 151 to 200, numbered from 100 on
		synctest.Wait()
		for i, from := range []int{2, 101, 4, 102} {
			expectAll(t, readers[i], upTo(from, 200, 1+i/2)...)
		}
		if s := l.Stats(); s.CatchingUp != 0 || s.CaughtUp != 4 {
			t.Errorf("got stats %+v, want 4 readers that caught up", s)
		}
	})
}

func TestLosingThePositionDuringASearchSkipsNoBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var lose bool
		r, _ := l.Join(Interest[int]{Eval: func(b int) []byte {
			if b == 3 && lose {
				lose = false
				c.set(func() { c.gone, c.down = 2, errDown })
				time.Sleep(time.Minute)
				c.fail(nil)
				time.Sleep(time.Minute)
				c.grow(5)
				synctest.Wait()
			}
			return every(3)(b)
		}})
		synctest.Wait()
		c.grow(300) // more than the group keeps
		synctest.Wait()
		lose = true
		if item, err := r.Next(); err != nil || item.Cursor != cursorOf(3) || r.Cursor() != cursorOf(3) {
			t.Errorf("Next returned %v and error %v, and Cursor is %q; want block 3", item, err, r.Cursor())
		}
		expectAll(t, r, upTo(4, 305, 3)...)
		if s := l.Stats(); s.CatchingUp != 0 {
			t.Errorf("got stats %+v, want no reader that is catching up", s)
		}
	})
}

func TestUnknownCursorInsideTheWindowIsCheckedWithTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(5)
		l := openStarted(t, c, Options[int]{})
		c.grow(5)
		synctest.Wait()
		known, unknown := resume(t, l, cursorOf(8), 1), resume(t, l, between(8), 1)
		expectAll(t, known, 9, 10)
		expectAll(t, unknown, 9, 10)
		if !slices.Equal(c.pages, []string{between(8)}) {
			t.Errorf("pages after %q were read, want one after the cursor that belongs to no block", c.pages)
		}
	})
}

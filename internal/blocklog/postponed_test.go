package blocklog

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A reader evaluates only the postponed block, and not again those before it that did not match.
func TestReaderEvaluatesAPostponedBlockOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		client := Client{Live: new(xsync.Usage)}
		var evaluated []int
		for _, i := range []Interest[int]{
			{Key: "slow", Eval: func(b int) []byte {
				if b == 3 {
					time.Sleep(2 * liveTime)
				}
				return nil
			}},
			{Key: "postponed", Eval: func(b int) []byte {
				evaluated = append(evaluated, b)
				return nil
			}},
		} {
			i.Client = &client
			var r *Reader[int]
			i.Wake = xsync.WakeFunc(func() {
				go func() {
					if item, err := r.Next(); item.Payload != nil || err != nil {
						t.Errorf("Next returned %v and error %v, want no block", item, err)
					}
				}()
			})
			var err error
			if r, err = l.Join(i); err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			synctest.Wait()
		}
		for range 5 {
			c.grow(1)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if want := []int{1, 2, 3, 4, 5}; !slices.Equal(evaluated, want) {
			t.Errorf("blocks %v were evaluated, want %v", evaluated, want)
		}
	})
}

// Even the wake functions of a client with many subscriptions do not delay the blocks of others. If its readers have
// not been woken for one block when the next one arrives, they are woken once for both.
func TestReadersOfAClientWithManyGroupsAreWokenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, blocks, each = 50, 5, 20 * time.Millisecond
		c := newChain(0)
		l := open(t, c, Options[int]{})
		greedy, wakes, last := Client{Live: new(xsync.Usage)}, 0, time.Time{}
		for i := range groups + 1 {
			interest := Interest[int]{Key: fmt.Sprint(i), Eval: every(1), Client: &greedy,
				Wake: xsync.WakeFunc(func() {
					wakes++
					time.Sleep(each)
				})}
			if i == groups {
				interest.Client, interest.Wake = nil, xsync.WakeFunc(func() { last = time.Now() })
			}
			r, err := l.Join(interest)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
		}
		synctest.Wait()
		began := time.Now()
		c.grow(blocks)
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := last.Sub(began); took > blocks*(liveTime+2*each) {
			t.Errorf("another client was woken for the last of %d blocks after %v", blocks, took)
		}
		if wakes > groups+2*blocks {
			t.Errorf("the readers of %d groups were woken %d times for %d blocks", groups, wakes, blocks)
		}
	})
}

// A reader that was woken for a block that its group has postponed evaluates it only when Next is called again, so that
// the caller can serve other readers first.
func TestNextReturnsOnceBeforeItEvaluatesPostponedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		client := Client{Live: new(xsync.Usage)}
		client.Live.Add(time.Second)
		woken, evaluated := 0, 0
		r, err := l.Join(Interest[int]{Key: "k", Client: &client,
			Wake: xsync.WakeFunc(func() { woken++ }),
			Eval: func(b int) []byte {
				evaluated++
				return every(1)(b)
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		synctest.Wait()
		c.grow(1)
		synctest.Wait()
		item, err := r.Next()
		if !item.Searching || !item.Behind || err != nil || woken != 2 || evaluated != 0 {
			t.Errorf("Next returned %+v and error %v after %d wakes and %d evaluations", item, err, woken, evaluated)
		}
		if item, err = r.Next(); string(item.Payload) != "1" || item.Origin != OriginWindow || err != nil {
			t.Errorf("the second call of Next returned %+v and error %v, want block 1", item, err)
		}
	})
}

// One reader of a client that has used up its time does not make all readers of its group evaluate the blocks.
func TestGroupIsRarelyPostponedForOneOfItsClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const readers, blocks = 100, 50
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var evaluated atomic.Int64
		for i := range readers {
			client := &Client{Live: new(xsync.Usage)}
			if i == 0 {
				client.Live.Add(time.Second)
			}
			r := readWhenWoken(t, l, Interest[int]{Key: "k", Client: client, Eval: func(b int) []byte {
				evaluated.Add(1)
				return every(1)(b)
			}}, func(Item) {})
			defer r.Close()
		}
		for range blocks {
			synctest.Wait()
			c.grow(1)
		}
		synctest.Wait()
		if n := evaluated.Load(); n > readers+blocks {
			t.Errorf("Eval was called %d times for %d blocks", n, blocks)
		}
	})
}

// While the reader of another group is woken, a postponed group has not been told of the newest blocks yet. Its readers
// receive them nevertheless, once and in order, whether they read at once, join, or wait until they are woken.
func TestReadersOfPostponedGroupsReceiveEachBlockOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		client := Client{Live: new(xsync.Usage)}
		var slow atomic.Bool
		var woken atomic.Int32
		join := func(key string, after *string, wake func()) *Reader[int] {
			r, err := l.Join(Interest[int]{Key: key, After: after, Client: &client, Eval: every(1),
				Wake: xsync.WakeFunc(wake)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(r.Close)
			return r
		}
		grow := func() {
			c.grow(1)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		join("slow", nil, func() {
			if slow.Load() {
				time.Sleep(time.Minute)
			}
		})
		r := join("k", nil, func() { woken.Add(1) })
		late := join("k", nil, func() {})
		synctest.Wait()
		grow()
		expect(t, r, 1)
		slow.Store(true)
		client.Live.Add(time.Second)
		woken.Store(0)
		grow()
		l.mu.Lock()
		if l.active != 1 || l.kept.Load() != 0 {
			t.Errorf("%d groups are active, want that which was resumed, and keep %d bytes", l.active, l.kept.Load())
		}
		l.mu.Unlock()
		if r.Cursor() != cursorOf(1) || late.Cursor() >= cursorOf(1) {
			t.Errorf("the cursors are %q and %q before the readers have read their blocks", r.Cursor(), late.Cursor())
		}
		grow()
		for _, want := range []string{"2", "3"} {
			if item, err := r.Next(); string(item.Payload) != want || err != nil {
				t.Errorf("Next returned %+v and error %v, want block %s", item, err, want)
			}
		}
		if r.Cursor() != cursorOf(3) {
			t.Errorf("the cursor of the reader that has read block 3 is %q", r.Cursor())
		}
		first := cursorOf(1)
		joined := join("k", &first, func() {})
		expect(t, joined, 2, 3)
		grow()
		if woken.Load() > 0 {
			t.Error("the reader was woken while that of the first group was")
		}
		time.Sleep(time.Hour) // until the client has time again
		grow()
		if woken.Load() != 2 {
			t.Errorf("the reader was woken %d times, want twice", woken.Load())
		}
		for _, r := range []*Reader[int]{r, late, joined} {
			if item, err := r.Next(); !item.Searching || err != nil {
				t.Errorf("Next returned %+v and error %v", item, err)
			}
		}
		expect(t, r, 4, 5)
		expect(t, joined, 4, 5)
		expect(t, late, 1, 2, 3, 4, 5)
	})
}

package blocklog

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

func TestIdleReaderUsesAtMost200Bytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		l := open(t, newChain(0), Options[int]{})
		readers := make([]*Reader[int], n)
		eval, wake := every(1), func() {}
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		before := heapInUse()
		for i := range readers {
			readers[i], _ = l.Join(Interest[int]{Eval: eval, Wake: xsync.WakeFunc(wake)})
		}
		if each := int(heapInUse()-before) / n; each > 200 {
			t.Errorf("an idle reader uses %d bytes, want at most 200", each)
		}
		if now := runtime.NumGoroutine(); now > goroutines+2 { // run's goroutine and that of its attempt
			t.Errorf("%d readers started %d goroutines, want at most 2", n, now-goroutines)
		}
		runtime.KeepAlive(readers)
	})
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkDeliverToTenThousandReaders(b *testing.B) {
	for _, groups := range []int{1, 1000} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			l := New(newChain(0).source(), Options[int]{})
			l.started = true // the benchmark delivers the blocks itself
			l.positioned = true
			eval := every(1)
			var got atomic.Int64
			for i := range 10_000 {
				var r *Reader[int]
				r, _ = l.Join(Interest[int]{Key: key(i % groups), Eval: eval, Wake: xsync.WakeFunc(func() {
					if item, err := r.Next(); item.Payload != nil && err == nil {
						got.Add(1)
					}
				})})
			}
			b.ReportAllocs()
			for n := 1; b.Loop(); n++ {
				l.accept(n)
			}
			if want := int64(l.Stats().Blocks) * 10_000; got.Load() != want {
				b.Fatalf("readers received %d items, want %d", got.Load(), want)
			}
		})
	}
}

func TestCatchingUpReaderUsesLittleMemoryAndReleasesIt(t *testing.T) {
	if testkit.RaceEnabled {
		t.Log("not measured: the race detector changes memory use")
		return
	}
	type block struct {
		number int
		cursor string
		_      [104]byte // makes it a little larger than a block of a chain
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 200
		c := newChain(5000)
		newBlock := func(b int) *block { return &block{number: b, cursor: cursorOf(b)} }
		l := New(Source[block]{
			Recent: func(ctx context.Context, n int) (blocks []block, err error) {
				numbers, err := c.recent(ctx, n)
				for _, b := range numbers {
					blocks = append(blocks, *newBlock(b))
				}
				return blocks, err
			},
			Cursor: func(b block) string { return b.cursor },
			Follow: func(ctx context.Context, after string) iter.Seq2[block, error] {
				return func(yield func(block, error) bool) {
					<-ctx.Done()
					yield(block{}, ctx.Err())
				}
			},
			Page: func(ctx context.Context, after string, n int) (blocks []block, err error) {
				numbers, err := c.page(ctx, after, n)
				for _, b := range numbers {
					blocks = append(blocks, *newBlock(b))
				}
				return blocks, err
			},
		}, Options[block]{Logger: quiet})
		limitHeld(l, n) // each reader has a page
		l.Start()
		synctest.Wait()
		goroutines, before := runtime.NumGoroutine(), heapInUse()
		readers := make([]*Reader[block], n)
		for i := range readers {
			after := cursorOf(i)
			readers[i], _ = l.Join(Interest[block]{After: &after, Eval: func(b block) []byte { return []byte{1} }})
		}
		for range 150 { // each reader is at a different page
			for _, r := range readers {
				if _, err := r.Next(); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		each := int(heapInUse()-before) / n
		t.Logf("a reader that is catching up uses %d bytes", each)
		if each > 64<<10 {
			t.Errorf("a reader that is catching up uses %d bytes, want at most 64 KiB", each)
		}
		// A goroutine that the synctest bubble considers ended may still have to exit.
		for range 100_000 {
			if runtime.NumGoroutine() <= goroutines {
				break
			}
			runtime.Gosched()
		}
		if l.Stats().CatchingUp != n || runtime.NumGoroutine() > goroutines {
			t.Errorf("%d readers are catching up, want %d; they started %d goroutines, want 0",
				l.Stats().CatchingUp, n, runtime.NumGoroutine()-goroutines)
		}
		for range 5000 {
			for _, r := range readers {
				r.Next()
			}
			if synctest.Wait(); l.Stats().CatchingUp == 0 {
				break
			}
		}
		c.pages = nil
		each = int(heapInUse()-before) / n
		t.Logf("a reader that has caught up uses %d bytes", each)
		if each > 1<<10 || l.Stats().CatchingUp > 0 {
			t.Errorf("a reader that has caught up uses %d bytes, want at most 1 KiB; %d readers are still catching up",
				each, l.Stats().CatchingUp)
		}
		runtime.KeepAlive(readers)
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

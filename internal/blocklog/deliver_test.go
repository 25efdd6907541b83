package blocklog

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Each of many groups receives every block once and in order. If Eval panics for one group, only this group ends.
func TestBlockIsEvaluatedForGroupsInParallel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	synctest.Test(t, func(t *testing.T) {
		const groups, blocks = 4 * groupsPerGoroutine, 20
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var begun, evaluated atomic.Int64
		all := make(chan struct{}) // closed when four evaluations have begun
		readers, got := make([]*Reader[int], groups), make([][]string, groups)
		for i := range readers {
			r, err := l.Join(Interest[int]{
				Key: fmt.Sprint(i),
				Eval: func(b int) []byte {
					if begun.Add(1) == 4 {
						close(all)
					}
					<-all
					evaluated.Add(1)
					if i == 7 && b == 5 {
						panic("seven")
					}
					return fmt.Append(nil, b)
				},
				Wake: xsync.WakeFunc(func() {
					item, err := readers[i].Next()
					for ; err == nil && item.Payload != nil; item, err = readers[i].Next() {
						got[i] = append(got[i], string(item.Payload))
					}
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			readers[i] = r
		}
		synctest.Wait()
		c.grow(blocks)
		synctest.Wait() // blocks forever if the groups are evaluated one after another
		var want []string
		for n := range blocks {
			want = append(want, fmt.Sprint(n+1))
		}
		for i, r := range readers {
			want := want
			if i == 7 {
				want = want[:4]
			}
			if !slices.Equal(got[i], want) {
				t.Errorf("reader %d received blocks %v, want %v", i, got[i], want)
			}
			r.Close()
		}
		if n := evaluated.Load(); n != groups*blocks-(blocks-5) {
			t.Errorf("Eval was called %d times, want %d", n, groups*blocks-(blocks-5))
		}
	})
}

func BenchmarkDeliverToTenThousandGroups(b *testing.B) {
	l := New(newChain(0).source(), Options[int]{})
	l.started, l.positioned = true, true // the benchmark delivers the blocks itself
	for i := range 10_000 {
		if _, err := l.Join(Interest[int]{Key: key(i), Eval: func(n int) []byte {
			sum := 0
			for k := range 14_000 { // takes 14 µs, like a query with 50 aliases
				sum += k ^ n
			}
			if sum == 1 {
				return []byte{1}
			}
			return nil
		}}); err != nil {
			b.Fatal(err)
		}
	}
	for n := 1; b.Loop(); n++ {
		l.accept(n)
	}
}

// readWhenWoken joins a reader. Each time that it is woken, a goroutine reads all available blocks and passes them to
// received.
func readWhenWoken(t *testing.T, l *Log[int], i Interest[int], received func(Item)) *Reader[int] {
	work := make(chan struct{}, 1)
	i.Wake = xsync.WakeFunc(func() {
		select {
		case work <- struct{}{}:
		default:
		}
	})
	r, err := l.Join(i)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range work {
			for item, err := r.Next(); err == nil && item.Payload != nil; item, err = r.Next() {
				received(item)
			}
		}
	}()
	t.Cleanup(func() { close(work) })
	return r
}

// A client with many subscriptions must not delay the blocks of others. Its own readers evaluate the blocks later.
func TestClientWithManyGroupsDoesNotDelayThoseOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const groups, blocks, each = 50, 5, 20 * time.Millisecond
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var greedy xsync.Usage
		readers, got := make([]*Reader[int], groups+1), make([][]string, groups+1)
		var last time.Time // when the reader of the other client has received its last block
		for i := range readers {
			client := &Client{Live: &greedy}
			if i == groups {
				client.Live = new(xsync.Usage)
			}
			readers[i] = readWhenWoken(t, l, Interest[int]{
				Key:    fmt.Sprint(i),
				Client: client,
				Eval: func(b int) []byte {
					if i < groups {
						time.Sleep(each)
					}
					if i%2 == 1 && b%2 == 1 {
						return nil
					}
					return fmt.Append(nil, b)
				},
			}, func(item Item) {
				got[i] = append(got[i], string(item.Payload))
				if i == groups {
					last = time.Now()
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		c.grow(blocks)
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := last.Sub(began); took > blocks*(liveTime+2*each) {
			t.Errorf("another client received %d blocks after %v", blocks, took)
		}
		for i := range readers {
			want := []string{"1", "2", "3", "4", "5"}
			if i%2 == 1 {
				want = []string{"2", "4"}
			}
			if !slices.Equal(got[i], want) {
				t.Errorf("reader %d received blocks %v, want %v", i, got[i], want)
			}
			readers[i].Close()
		}
	})
}

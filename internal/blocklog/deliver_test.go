package blocklog

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Each of many groups receives every block once and in order, and a group whose Eval panics ends alone.
func TestBlockIsEvaluatedOnAllProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	synctest.Test(t, func(t *testing.T) {
		const feeds, blocks = 4 * groupsPerGoroutine, 20
		c := newChain(0)
		l := open(t, c, Options[int]{})
		var under, met atomic.Int64
		all := make(chan struct{}) // closed when four are under way
		readers, got := make([]*Reader[int], feeds), make([][]string, feeds)
		for i := range readers {
			r, err := l.Join(Interest[int]{
				Key: fmt.Sprint(i),
				Eval: func(b int) []byte {
					if under.Add(1) == 4 {
						close(all)
					}
					<-all
					met.Add(1)
					if i == 7 && b == 5 {
						panic("seven")
					}
					return fmt.Append(nil, b)
				},
				Wake: func() {
					for item, err := readers[i].Next(); err == nil && item.Payload != nil; item, err = readers[i].Next() {
						got[i] = append(got[i], string(item.Payload))
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			readers[i] = r
		}
		synctest.Wait()
		c.grow(blocks)
		synctest.Wait() // blocks forever if one group waits for another
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
				t.Errorf("reader %d has %v", i, got[i])
			}
			r.Close()
		}
		if n := met.Load(); n != feeds*blocks-(blocks-5) {
			t.Errorf("%d evaluations", n)
		}
	})
}

func BenchmarkBlockForManyDifferentSubscriptions(b *testing.B) {
	l := New(newChain(0).source(), Options[int]{})
	l.started, l.positioned = true, true // the benchmark delivers the blocks itself
	for i := range 10_000 {
		if _, err := l.Join(Interest[int]{Key: key(i), Eval: func(n int) []byte {
			sum := 0
			for k := range 14_000 { // 14 µs, as 50 aliases take
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

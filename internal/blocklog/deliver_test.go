package blocklog

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

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

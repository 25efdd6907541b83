package blocklog

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
)

func TestIdleReaderCostsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		l := open(t, newChain(0), Options{})
		readers := make([]*Reader[int], n)
		eval, wake := every(1), func() {}
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		before := heap()
		for i := range readers {
			readers[i], _ = l.Join("", eval, wake)
		}
		if each := int(heap()-before) / n; each > 200 {
			t.Errorf("%d bytes for an idle reader, want at most 200", each)
		}
		if now := runtime.NumGoroutine(); now > goroutines+1 {
			t.Errorf("%d goroutines more for %d readers", now-goroutines, n)
		}
		runtime.KeepAlive(readers)
	})
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkDeliverTenThousandReaders(b *testing.B) {
	for _, feeds := range []int{1, 1000} {
		b.Run(fmt.Sprintf("feeds=%d", feeds), func(b *testing.B) {
			l := New(newChain(0).source(), Options{})
			l.started = true // the benchmark is the one who follows
			l.positioned = true
			eval := every(1)
			var got int
			for i := range 10_000 {
				var r *Reader[int]
				r, _ = l.Join(key(i%feeds), eval, func() {
					if item, err := r.Next(); item.Payload != nil && err == nil {
						got++
					}
				})
			}
			b.ReportAllocs()
			for n := 1; b.Loop(); n++ {
				l.accept(n)
			}
			if want := int(l.Stats().Blocks) * 10_000; got != want {
				b.Fatalf("%d items, want %d", got, want)
			}
		})
	}
}

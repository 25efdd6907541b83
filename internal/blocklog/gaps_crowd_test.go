package blocklog

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Readers on their own goroutines read a chain while other readers join and leave. All gaps of the chain are repaired,
// some of them late. The readers do not wait for each other, so that the race detector sees many schedules.
func TestConcurrentReadersReceiveRepairedBlocks(t *testing.T) {
	for seed := range testkit.Seeds(t, 6) {
		synctest.Test(t, func(t *testing.T) {
			trees := newRandomShards(rand.New(rand.NewPCG(seed, 5)))
			f := newShardSource()
			for range 150 {
				f.all = append(f.all, trees.next())
			}
			l := openShards(t, f, Options[shardBlock]{
				Window: []int{20, 300, 5000}[seed%3], MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond,
			})
			limitHeld(l, []int{2, maxHeldPages}[seed%2])
			synctest.Wait()
			var readers sync.WaitGroup
			for i := range 12 {
				readers.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 6 {
						readAndResume(t, l, f, rnd)
					}
				})
			}
			finished := make(chan struct{})
			go func() { readers.Wait(); close(finished) }()
			for n := 0; ; n++ {
				select {
				case <-finished:
					synctest.Wait()
					if s := l.Stats(); s.GapsRepaired == 0 || s.Readers+s.Groups+s.CatchingUp > 0 {
						t.Errorf("stats are %+v after all readers were closed, want repaired gaps and no readers", s)
					}
					return
				case <-time.After(time.Millisecond):
				}
				f.set(func() {
					for range 20 {
						p := trees.next()
						f.all = append(f.all, p)
						f.passes[p.number] = p.number%13 == 0
					}
				})
				runtime.Gosched()
			}
		})
	}
}

// While the log evaluates a missing block for one group, another one joins.
func TestRepairEndsWhileClientsKeepSubscribing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		l := openShards(t, f, Options[shardBlock]{})
		r := joinAt(t, l, blocksOf())
		synctest.Wait()
		end, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for n, last := 0, r; ; n++ {
				slow := blocksOf(0)
				slow.Key = strconv.Itoa(n)
				slow.Eval = func(shardBlock) []byte { time.Sleep(10 * time.Millisecond); return nil }
				joined := joinAt(t, l, slow)
				if last != r {
					last.Close()
				}
				last = joined
				select {
				case <-time.After(time.Millisecond):
				case <-end:
					last.Close()
					return
				}
			}
		}()
		time.Sleep(time.Second)
		f.growSkipped([]int{3}, base(2), base(3))
		time.Sleep(time.Minute)
		expectNow(t, r, 3, 4)
		close(end)
		<-ended
	})
}

// readAndResume reads for a while, joins again after each reported gap, and checks that no block is missing.
func readAndResume(t *testing.T, l *Log[shardBlock], f *shardSource, rnd *rand.Rand) {
	interest := []Interest[shardBlock]{blocksOf(), blocksOf(-1), blocksOf(0), blocksOf(0, 1)}[rnd.IntN(4)]
	ready := make(chan struct{}, 1)
	interest.Wake = xsync.WakeFunc(func() {
		select {
		case ready <- struct{}{}:
		default:
		}
	})
	f.mu.Lock()
	start := cursorOf(max(1, len(f.all)-rnd.IntN(200)))
	f.mu.Unlock()
	interest.After = &start
	r, err := l.Join(interest)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { r.Close() }()
	var got []int
	for range 1 + rnd.IntN(600) {
		item, err := r.Next()
		var lost *Lost
		switch {
		case errors.As(err, &lost) && errors.Is(err, ErrGap):
			for len(got) > 0 && cursorOf(got[len(got)-1]) > lost.Cursor {
				got = got[:len(got)-1]
			}
			start = min(start, lost.Cursor)
			r.Close()
			interest.After = &lost.Cursor
			if r, err = l.Join(interest); err != nil {
				t.Error(err)
				return
			}
			continue
		case err != nil:
			t.Error(err)
			return
		case item.Payload == nil:
			<-ready
			continue
		}
		n, _ := strconv.Atoi(string(item.Payload))
		got = append(got, n)
		if rnd.IntN(30) == 0 {
			time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
		}
	}
	// A block that Follow skipped may be missing from got: it is found later, or the gap is reported later.
	f.mu.Lock()
	defer f.mu.Unlock()
	var want []int
	if from, _ := strconv.Atoi(start); len(got) > 0 {
		for _, p := range f.all[from:max(from, got[len(got)-1])] { // block n is at index n-1
			certain := !f.passes[p.number] || slices.Contains(got, p.number)
			if interest.Eval(p) != nil && certain {
				want = append(want, p.number)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the reader %q received after %q blocks %v\nwant %v", interest.Key, start, got, want)
	}
}

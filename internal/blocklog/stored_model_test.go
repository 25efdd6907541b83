package blocklog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// A slowSource is a shardSource whose calls take time and fail, and whose pages lag. The mutex of the shardSource
// guards the fields.
type slowSource struct {
	*shardSource
	takes   time.Duration // maximum duration of each call
	failing int           // percentage of calls that fail
	lag     int           // number of newest blocks that Page does not return yet

	random sync.Mutex
	rnd    *rand.Rand
}

func (s *slowSource) source() Source[shardBlock] {
	src := s.shardSource.source()
	page, between, before := src.Page, src.Between, src.Before
	src.Page = func(ctx context.Context, after string, n int) (blocks []shardBlock, err error) {
		return s.call(ctx, func() ([]shardBlock, error) {
			s.mu.Lock()
			newest := len(s.all) - s.lag
			s.mu.Unlock()
			blocks, err := page(ctx, after, n)
			return slices.DeleteFunc(blocks, func(b shardBlock) bool { return b.number > newest }), err
		})
	}
	src.Between = func(ctx context.Context, after string, b shardBlock, n int) ([]shardBlock, error) {
		return s.call(ctx, func() ([]shardBlock, error) { return between(ctx, after, b, n) })
	}
	src.Before = func(ctx context.Context, b shardBlock, shard *uint64, n int) ([]shardBlock, error) {
		return s.call(ctx, func() ([]shardBlock, error) { return before(ctx, b, shard, n) })
	}
	return src
}

// call waits for a random time, and then calls read or fails.
func (s *slowSource) call(ctx context.Context, read func() ([]shardBlock, error)) ([]shardBlock, error) {
	s.mu.Lock()
	takes, failing := s.takes, s.failing
	s.mu.Unlock()
	s.random.Lock()
	wait, fails := time.Duration(s.rnd.Int64N(int64(takes)+1)), s.rnd.IntN(100) < failing
	s.random.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if fails {
		return nil, errDown
	}
	return read()
}

// growWithGaps adds blocks. Follow skips runs of them, and some runs are never stored.
func (s *slowSource) growWithGaps(rnd *rand.Rand, trees *randomShards, n, often int) {
	s.set(func() {
		skip, lost := 0, false
		for range n {
			p := trees.next()
			s.all = append(s.all, p)
			if skip == 0 && rnd.IntN(often) == 0 {
				skip, lost = 1+rnd.IntN(3)*rnd.IntN(4), rnd.IntN(4) == 0
			}
			if skip > 0 {
				skip--
				s.passes[p.number], s.lacks[p.number] = true, lost
			}
		}
	})
}

// leave closes a client's reader, either as a server does that shuts down or as if the connection was lost. The client
// resumes at once.
func (w *modelClient) leave(t *testing.T, l *Log[shardBlock], rnd *rand.Rand) {
	t.Helper()
	var cursor string
	var err error
	if n := len(w.got); n > 0 && rnd.IntN(2) == 0 {
		cursor = cursorOf(w.got[n-1])
		w.interest.Reported = w.reportedAt(cursor)
		w.cuts = append(w.cuts, cursor)
	} else {
		cursor, w.interest.Reported, err = w.ResumePoint()
		if err == nil && n > 0 && cursor < cursorOf(w.got[n-1]) {
			t.Errorf("ResumePoint returned %q and no error although the client received blocks %v", cursor, w.got)
		}
	}
	if errors.Is(err, ErrGap) {
		for len(w.got) > 0 && cursorOf(w.got[len(w.got)-1]) > cursor {
			w.got = w.got[:len(w.got)-1]
		}
		w.sentBack, w.start = append(w.sentBack, cursor), min(w.start, cursor)
	}
	w.Close()
	w.join(t, l, &cursor)
}

// checkStored checks that a client has received each stored block that the log can know of, because it has accepted a
// later block of the same shard.
func (w *modelClient) checkStored(t *testing.T, f *shardSource, accepted map[int]bool) {
	t.Helper()
	for _, p := range f.all {
		c := cursorOf(p.number)
		if f.lacks[p.number] || c <= w.start || c > w.Cursor() || w.interest.Eval(p) == nil ||
			slices.Contains(w.got, p.number) {
			continue
		}
		shows := func(q shardBlock) bool {
			return accepted[q.number] && q.Workchain == p.Workchain && overlap(q.Shard, p.Shard)
		}
		if i := slices.IndexFunc(f.all[p.number:], shows); i >= 0 {
			t.Fatalf("client %q received no block %d between %q and %q although it is stored and block %d shows it: "+
				"sent back to %q", w.interest.Key, p.number, w.start, w.Cursor(), p.number+i+1, w.sentBack)
		}
	}
}

// Follow skips blocks, most of which are stored, across splits and merges. The other calls of the source are slow and
// fail. Clients leave at any time, even during a search, and resume. Each client receives every stored block, once and
// in order.
func TestReadersReceiveEveryStoredBlock(t *testing.T) {
	var total Stats
	seeds := testkit.RaceSample(t, 40)
	for seed := range testkit.Seeds(t, seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 99))
				trees := newRandomShards(rnd)
				f := &slowSource{shardSource: newShardSource(), rnd: rand.New(rand.NewPCG(seed, 3))}
				f.recents = []int{1, recentBlocks}[rnd.IntN(2)]
				for range 1 + rnd.IntN(200) {
					f.all = append(f.all, trees.next())
				}
				accepted := make(map[int]bool)
				l := New(f.source(), Options[shardBlock]{
					Logger: quiet,
					Window: []int{1, 3, 30, 200}[rnd.IntN(4)],
					Events: Events[shardBlock]{Block: func(p shardBlock) {
						f.mu.Lock()
						defer f.mu.Unlock()
						accepted[p.number] = true
					}},
				})
				defer func() { _ = l.Close(context.Background()) }()
				limitHeld(l, []int{2, 5, maxHeldPages}[rnd.IntN(3)])
				l.Start()
				synctest.Wait()
				takes := []time.Duration{0, 300 * time.Millisecond, 3 * time.Second}[rnd.IntN(3)]
				failing, often := []int{0, 10, 60}[rnd.IntN(3)], []int{6, 15, 60}[rnd.IntN(3)]
				var clients []*modelClient
				for range 250 {
					switch rnd.IntN(14) {
					case 0, 1, 2, 3:
						f.growWithGaps(rnd, trees, rnd.IntN([]int{6, 6, 6, 50}[rnd.IntN(4)]), often)
					case 4:
						time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
					case 5:
						f.set(func() {
							f.takes, f.failing = takes*time.Duration(rnd.IntN(2)), failing*rnd.IntN(2)
							f.lag = rnd.IntN(30)
						})
					case 6, 7:
						synctest.Wait()
						clients = append(clients, newModelClient(t, l, f.shardSource, rnd))
					default:
						if len(clients) == 0 {
							continue
						}
						w := clients[rnd.IntN(len(clients))]
						if rnd.IntN(2) == 0 {
							synctest.Wait()
						}
						for n := rnd.IntN(60); n > 0 && w.next(t, l, f.shardSource, accepted); n-- {
						}
						if rnd.IntN(5) == 0 {
							w.leave(t, l, rnd)
						}
					}
				}
				f.set(func() { f.takes, f.failing, f.lag = 0, 0, 0 })
				for range 20 { // blocks that reveal the last gaps, and time to check all blocks
					f.growWithGaps(rnd, trees, 5, 1<<30)
					time.Sleep(10 * time.Second)
				}
				atEnd := func(w *modelClient) bool {
					return w.Cursor() == cursorOf(len(f.all)) && w.at.next != catchingUp
				}
				for range 3000 { // a reader waits up to five seconds at each permanent gap
					synctest.Wait()
					done := true
					for _, w := range clients {
						for w.next(t, l, f.shardSource, accepted) {
						}
						done = done && atEnd(w)
					}
					if done {
						break
					}
					time.Sleep(time.Second)
				}
				for _, w := range clients {
					w.check(t, f.shardSource, accepted)
					w.checkStored(t, f.shardSource, accepted)
					if !atEnd(w) {
						t.Errorf("a client stopped at %q, want to reach block %d", w.Cursor(), len(f.all))
					}
					w.Close()
				}
				s := l.Stats()
				total.EndedByGap += s.EndedByGap
				total.GapsFound += s.GapsFound
				total.GapsRepaired += s.GapsRepaired
			})
		})
	}
	t.Logf("stats of all runs: %+v", total)
	if least := uint64(12 * seeds); total.GapsRepaired < 2*least || total.GapsFound < total.GapsRepaired+least ||
		total.EndedByGap < 10*least {
		t.Errorf("the random runs cover too few gaps: %+v", total)
	}
}

package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// A prunedSource is a slowSource that prunes its oldest blocks and keeps the rules for Backends while it does. The
// mutex of the shardSource guards the fields.
type prunedSource struct {
	*slowSource
	floor int // number of the newest pruned block
}

func newPrunedSource(seed uint64, blocks []shardBlock) *prunedSource {
	slow := &slowSource{shardSource: newShardSource(blocks...), rnd: rand.New(rand.NewPCG(seed, 3))}
	return &prunedSource{slowSource: slow}
}

// tooOld returns errGone if a block after the cursor was pruned. The caller must hold s.mu.
func (s *prunedSource) tooOld(after string) error {
	if after < cursorOf(s.floor) {
		return errGone
	}
	return nil
}

// read calls read with a function that reports whether a block is still stored. It first waits as slowSource does.
func (s *prunedSource) read(
	ctx context.Context, read func(kept func(shardBlock) bool) ([]shardBlock, error),
) ([]shardBlock, error) {
	return s.call(ctx, func() ([]shardBlock, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return read(func(b shardBlock) bool { return b.number > s.floor })
	})
}

func (s *prunedSource) source() Source[shardBlock] {
	src := s.slowSource.source()
	follow := src.Follow
	src.Recent = func(ctx context.Context, n int) ([]shardBlock, error) {
		return s.read(ctx, func(kept func(shardBlock) bool) ([]shardBlock, error) {
			return s.storedBefore(len(s.all)+1, min(n, s.recents), kept), s.down
		})
	}
	src.Page = func(ctx context.Context, after string, n int) ([]shardBlock, error) {
		return s.read(ctx, func(kept func(shardBlock) bool) ([]shardBlock, error) {
			if after != "" && s.tooOld(after) != nil {
				return nil, errGone
			}
			return s.stored(after, n, func(b shardBlock) bool { return kept(b) && b.number <= len(s.all)-s.lag }), nil
		})
	}
	src.Between = func(ctx context.Context, after string, before shardBlock, n int) ([]shardBlock, error) {
		return s.read(ctx, func(kept func(shardBlock) bool) ([]shardBlock, error) {
			return s.stored(after, n, func(b shardBlock) bool {
				return kept(b) && b.Workchain == before.Workchain && b.number < before.number
			}), s.tooOld(after)
		})
	}
	src.Before = func(ctx context.Context, before shardBlock, shard *uint64, n int) ([]shardBlock, error) {
		return s.read(ctx, func(kept func(shardBlock) bool) ([]shardBlock, error) {
			return s.storedBefore(before.number, n, func(b shardBlock) bool {
				return kept(b) && (shard == nil || b.Workchain == before.Workchain && b.Shard == *shard)
			}), nil
		})
	}
	src.Follow = func(ctx context.Context, after string) iter.Seq2[shardBlock, error] {
		return func(yield func(shardBlock, error) bool) {
			for b, err := range follow(ctx, after) {
				s.mu.Lock()
				if err == nil && cursorOf(b.number) > after {
					err = s.tooOld(after)
				}
				s.mu.Unlock()
				if !yield(b, err) || err != nil {
					return
				}
				after = max(after, cursorOf(b.number))
			}
		}
	}
	return src
}

// nextStored reads one block of a chain in which no block is missing. If the blocks after the client's position were
// pruned, the client starts again at the oldest stored block.
func (w *modelClient) nextStored(t *testing.T, l *Log[shardBlock], s *prunedSource) bool {
	t.Helper()
	if !w.ready.Swap(false) {
		return false
	}
	got, err := w.Next()
	var lost *Lost
	switch {
	case errors.Is(err, errGone) && errors.As(err, &lost):
		w.checkAll(t, s)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tooOld(lost.Cursor) == nil {
			t.Errorf("%v, although the newest pruned block is %d", err, s.floor)
		}
		w.Close()
		w.start, w.got = "", nil
		w.join(t, l, &w.start)
		return true
	case err != nil:
		t.Fatalf("a reader with the start %q and the blocks %v ended with %v", w.start, w.got, err)
	case got.Payload == nil:
		return false
	}
	n, _ := numberAfter(got.Cursor)
	w.got = append(w.got, n-1)
	w.ready.Store(true)
	return true
}

// checkAll checks that a client has received exactly the matching blocks from its start to its cursor. A client that
// started at the oldest stored block may lack any number of blocks before its first one.
func (w *modelClient) checkAll(t *testing.T, s *prunedSource) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var want []int
	for _, b := range s.all {
		c := cursorOf(b.number)
		started := c > w.start && (w.start != "" || len(w.got) > 0 && b.number >= w.got[0])
		if started && c <= w.Cursor() && w.interest.Eval(b) != nil {
			want = append(want, b.number)
		}
	}
	if !slices.Equal(w.got, want) {
		t.Fatalf("client %q received between %q and %q\n%v, want\n%v", w.interest.Key, w.start, w.Cursor(), w.got, want)
	}
}

// leaveStored closes a client's reader. The client resumes at once, perhaps with another log.
func (w *modelClient) leaveStored(t *testing.T, l *Log[shardBlock], rnd *rand.Rand) {
	t.Helper()
	cursor, _, err := w.ResumePoint()
	if err != nil {
		t.Errorf("ResumePoint returned %v", err)
	}
	w.Close()
	if cursor == "" {
		w.start, w.got = "", nil
	} else if n := len(w.got); n > 0 && rnd.IntN(2) == 0 {
		cursor = cursorOf(w.got[n-1])
	}
	w.join(t, l, &cursor)
}

// The source prunes blocks, fails, lags and loses its position, but Follow skips nothing. The service restarts. Each
// client receives its blocks once and in order, and no gap is ever reported.
func TestPrunedChainHasNoGaps(t *testing.T) {
	var delivered, restarts, old int
	seeds := testkit.RaceSample(t, 60)
	for seed := range testkit.Seeds(t, seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 21))
				trees := newRandomShards(rnd)
				var blocks []shardBlock
				for range 1 + rnd.IntN(300) {
					blocks = append(blocks, trees.next())
				}
				s := newPrunedSource(seed, blocks)
				s.recents = []int{1, 5, recentBlocks}[rnd.IntN(3)]
				window, held := []int{1, 3, 30, 200}[rnd.IntN(4)], []int{2, 5, maxHeldPages}[rnd.IntN(3)]
				open := func() *Log[shardBlock] {
					l := New(s.source(), Options[shardBlock]{Logger: quiet, Window: window})
					limitHeld(l, held)
					l.Start()
					synctest.Wait()
					return l
				}
				l := open()
				defer func() { _ = l.Close(context.Background()) }()
				var clients []*modelClient
				for range 250 {
					switch rnd.IntN(16) {
					case 0, 1, 2, 3:
						s.growWithGaps(rnd, trees, rnd.IntN([]int{6, 6, 6, 50}[rnd.IntN(4)]), 1<<30)
					case 4:
						time.Sleep(time.Duration(rnd.IntN(5000)) * time.Millisecond)
					case 5, 6:
						if synctest.Wait(); isPositioned(l) {
							clients = append(clients, newModelClient(t, l, s.shardSource, rnd))
						}
					case 7:
						s.set(func() { s.floor = max(s.floor, len(s.all)-1-rnd.IntN([]int{5, 250, 250}[rnd.IntN(3)])) })
					case 8:
						s.set(func() {
							s.down, s.replay, s.lag = errDown, rnd.IntN(10), rnd.IntN(30)
							if s.gone = 0; rnd.IntN(20) < 2 {
								s.gone = 1 + rnd.IntN(2)
							}
						})
					case 9:
						s.set(func() { s.down = nil })
						time.Sleep(time.Duration(rnd.IntN(5)) * time.Second)
					case 10:
						if synctest.Wait(); rnd.IntN(4) > 0 || !isPositioned(l) {
							continue
						}
						restarts++
						before := l
						l = open()
						for _, w := range clients {
							w.leaveStored(t, l, rnd)
						}
						_ = before.Close(context.Background())
					default:
						if len(clients) == 0 {
							continue
						}
						w := clients[rnd.IntN(len(clients))]
						for n := rnd.IntN(60); n > 0 && w.nextStored(t, l, s); n-- {
						}
						if rnd.IntN(8) == 0 {
							w.leaveStored(t, l, rnd)
						}
					}
				}
				s.set(func() { s.down, s.gone, s.lag = nil, 0, 0 })
				for range 10 {
					s.growWithGaps(rnd, trees, 5, 1<<30)
					time.Sleep(10 * time.Second)
				}
				for range 100 {
					synctest.Wait()
					for _, w := range clients {
						for w.nextStored(t, l, s) {
						}
					}
					time.Sleep(holdTime)
				}
				for _, w := range clients {
					w.checkAll(t, s)
					if w.Cursor() != cursorOf(len(s.all)) {
						t.Errorf("a client stopped at %q, want to reach block %d", w.Cursor(), len(s.all))
					}
					if w.start == "" {
						old++
					}
					delivered += len(w.got)
					w.Close()
				}
			})
		})
	}
	t.Logf("%d blocks, %d restarts, %d clients that started at the oldest block", delivered, restarts, old)
	if delivered < 800*seeds || restarts < 2*seeds || old < 8*seeds {
		t.Error("the random runs cover too little, see the numbers above")
	}
}

// isPositioned reports whether the log knows its position in the chain.
func isPositioned(l *Log[shardBlock]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.positioned
}

package blocklog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A modelClient is a client that reads a chain with gaps, and joins again after each reported gap.
type modelClient struct {
	*Reader[shardBlock]
	interest Interest[shardBlock]
	start    string
	ready    *atomic.Bool
	got      []int
	sentBack []string // cursors to which it was sent back
	cuts     []string // cursors from which it resumed after its connection was cut
}

func newModelClient(t *testing.T, l *Log[shardBlock], f *shardSource, rnd *rand.Rand) *modelClient {
	interests := []Interest[shardBlock]{blocksOf(), blocksOf(-1), blocksOf(0), blocksOf(1), blocksOf(0, -1)}
	for _, half := range []uint64{1 << 62, 3 << 62} {
		i, whole := blocksOf(0), blocksOf(0).Eval
		i.Key += fmt.Sprintf(" %x", half)
		i.Eval = func(p shardBlock) []byte {
			if !overlap(p.Shard, half) {
				return nil
			}
			return whole(p)
		}
		interests = append(interests, i)
	}
	c := &modelClient{interest: interests[rnd.IntN(len(interests))], ready: new(atomic.Bool)}
	c.interest.Wake, c.interest.Client = xsync.WakeFunc(func() { c.ready.Store(true) }), &modelConnection
	c.interest.Eval = slowFor(func(p shardBlock) int { return p.number }, c.interest.Eval)
	var after *string
	c.start = l.Window().last()
	if !l.positioned || rnd.IntN(2) == 0 {
		c.start = cursorOf(rnd.IntN(len(f.all) + 10))
		after = &c.start
	}
	c.join(t, l, after)
	return c
}

// last returns the cursor of the window's newest block.
func (w Window[B]) last() string {
	if len(w.Blocks) == 0 {
		return w.After
	}
	return cursorOfShardBlock(any(w.Blocks[len(w.Blocks)-1]).(shardBlock))
}

func (w *modelClient) join(t *testing.T, l *Log[shardBlock], after *string) {
	w.ready.Store(true)
	w.interest.After = after
	var err error
	if w.Reader, err = l.Join(w.interest); err != nil {
		t.Fatal(err)
	}
}

// next reads one block if the client has been woken, and reports whether it should be called again. If a gap is
// reported, the client discards the blocks after it and resumes.
func (w *modelClient) next(t *testing.T, l *Log[shardBlock], f *shardSource, accepted map[int]bool) bool {
	if !w.ready.Swap(false) {
		return false
	}
	got, err := w.Next()
	var lost *Lost
	switch {
	case errors.As(err, &lost) && errors.Is(err, ErrGap):
		f.mu.Lock()
		defer f.mu.Unlock()
		if lost.Cursor != w.Cursor() {
			t.Errorf("the client was sent back to %q, but Cursor is %q", lost.Cursor, w.Cursor())
		}
		missed := slices.ContainsFunc(f.all, func(p shardBlock) bool {
			return f.passes[p.number] && cursorOf(p.number) > lost.Cursor && w.interest.Concerns(p.Workchain)
		})
		if !missed && lost.Cursor > w.Reader.start { // a permanent gap may begin before the reader's start
			t.Errorf("a gap was reported after %q, but no block was missing", lost.Cursor)
		}
		for len(w.got) > 0 && cursorOf(w.got[len(w.got)-1]) > lost.Cursor {
			w.got = w.got[:len(w.got)-1]
		}
		w.sentBack = append(w.sentBack, lost.Cursor)
		w.start = min(w.start, lost.Cursor) // it may also lack a block from before its first start
		w.Close()
		w.interest.Reported = w.reportedAt(lost.Cursor)
		w.join(t, l, &lost.Cursor)
		return true
	case err != nil:
		t.Fatal(err)
	case got.Payload == nil:
		return false
	}
	n, _ := numberAfter(got.Cursor)
	n--
	if len(w.got) > 0 && n <= w.got[len(w.got)-1] || w.Cursor() < got.Cursor && !w.ended() || got.Cursor <= w.start {
		t.Fatalf("received block %d after %v with start %q, and Cursor is %q", n, w.got, w.start, w.Cursor())
	}
	w.got = append(w.got, n)
	w.ready.Store(true)
	return true
}

// ended reports whether the reader has ended. A gap that was found since the last block ends the reader and moves its
// cursor back.
func (w *modelClient) ended() bool {
	w.group.mu.Lock()
	defer w.group.mu.Unlock()
	return w.lost != nil
}

// check checks that a modelClient has received exactly the matching blocks from its start to its cursor. It allows both
// cases for a block that Follow skipped and that the log did not find, because the client may have read it from a page.
func (w *modelClient) check(t *testing.T, f *shardSource, accepted map[int]bool) {
	t.Helper()
	got := w.got
	for _, p := range f.all {
		c := cursorOf(p.number)
		if c <= w.start || c > w.Cursor() || w.interest.Eval(p) == nil {
			continue
		}
		switch {
		case len(got) > 0 && got[0] == p.number:
			got = got[1:]
		case !f.passes[p.number] || accepted[p.number]:
			t.Fatalf("the client %q did not receive block %d between %q and %q: %v",
				w.interest.Key, p.number, w.start, w.Cursor(), w.got)
		}
	}
	if len(got) > 0 {
		t.Fatalf("the client %q received %v between %q and %q although they do not match or are repeated",
			w.interest.Key, got, w.start, w.Cursor())
	}
	w.checkReported(t, f)
}

// Follow skips blocks. The source stores these blocks at once, later or never. It also fails, repeats blocks and loses
// its position. Slow and fast readers of all or of some workchains start now or at any cursor. Each reader receives
// exactly its blocks, once and in order, if its client resumes after each reported gap.
func TestReadersOfAChainWithGapsReceiveExactlyTheirBlocks(t *testing.T) {
	var total Stats
	var early, late, unrepaired, unnoticed int
	seeds := testkit.RaceSample(t, 80)
	for seed := range testkit.Seeds(t, seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 7))
				trees := newRandomShards(rnd)
				f := newShardSource()
				f.recents = []int{1, recentBlocks, recentBlocks}[rnd.IntN(3)]
				for range rnd.IntN(200) {
					f.all = append(f.all, trees.next())
				}
				accepted, newest := map[int]bool{}, 0
				stored := make(map[int]time.Time)
				often, rarely := []int{15, 60}[rnd.IntN(2)], []int{1, 8}[seed/3%2]
				l := openShards(t, f, Options[shardBlock]{
					Window: []int{3, 30, 200}[rnd.IntN(3)],
					Events: Events[shardBlock]{
						Block: func(p shardBlock) {
							f.mu.Lock()
							defer f.mu.Unlock()
							if accepted[p.number] {
								t.Errorf("block %d was accepted twice", p.number)
							}
							accepted[p.number] = true
							if p.number < newest {
								late++
							} else if f.passes[p.number] {
								early++
							}
							newest = max(newest, p.number)
						},
						Gap: func(_ int32, _ string, repaired bool, ended int) {
							if !repaired {
								unrepaired++
							} else if ended == 0 {
								unnoticed++
							}
						},
					},
				})
				limitHeld(l, []int{5, maxHeldPages, 2}[seed%3])
				synctest.Wait()
				grow := func(n int) {
					f.set(func() {
						for range n {
							p := trees.next()
							f.all = append(f.all, p)
							if rnd.IntN(often) > 0 {
								continue
							}
							f.passes[p.number] = true
							switch rnd.IntN(4) {
							case 0:
								f.lacks[p.number] = true
							case 1:
								f.lacks[p.number] = true
								stored[p.number] = time.Now().Add(time.Duration(rnd.IntN(8000)) * time.Millisecond)
							}
						}
					})
				}
				store := func() {
					f.set(func() {
						for n, at := range stored {
							if !at.After(time.Now()) {
								delete(f.lacks, n)
							}
						}
					})
				}
				var clients []*modelClient
				shown := ""
				for range 250 {
					switch rnd.IntN(14) {
					case 0, 1, 2:
						grow(rnd.IntN(6))
					case 3:
						grow(rnd.IntN(50))
					case 4:
						f.set(func() {
							f.down, f.replay = errDown, rnd.IntN(10)
							if f.gone = 0; rnd.IntN(20) < rarely {
								f.gone = 1 + rnd.IntN(3)
							}
						})
					case 5:
						f.set(func() { f.down = nil })
						for range rnd.IntN(10) {
							time.Sleep(time.Second)
							store()
						}
					case 6, 7:
						synctest.Wait()
						clients = append(clients, newModelClient(t, l, f, rnd))
					case 8:
						synctest.Wait()
						store()
						w := l.Window()
						at := slices.Clone(w.Blocks)
						for _, p := range f.all {
							c := cursorOf(p.number)
							if c > w.After && c <= w.last() && (!f.passes[p.number] || accepted[p.number]) {
								if len(at) == 0 || at[0].number > p.number {
									t.Fatalf("block %d is missing from the window %v", p.number, w)
								}
								if at[0].number == p.number {
									at = at[1:]
								}
							}
						}
						if w.Reached < shown || w.Live && w.last() < w.Reached {
							t.Errorf("after %q was shown, Reached is %q and Live is %v at %q",
								shown, w.Reached, w.Live, w.last())
						}
					default:
						if len(clients) == 0 {
							continue
						}
						i := rnd.IntN(len(clients))
						w := clients[i]
						if rnd.IntN(2) == 0 {
							synctest.Wait()
						}
						for n := rnd.IntN(60); n > 0 && w.next(t, l, f, accepted); n-- {
						}
						if n := len(w.got); n > 0 {
							shown = max(shown, cursorOf(w.got[n-1]))
						}
						switch n := len(w.got); {
						case rnd.IntN(40) == 0:
							w.Close()
							clients = slices.Delete(clients, i, i+1)
						case n > 0 && rnd.IntN(10) == 0: // the client's connection is cut
							w.Close()
							last := cursorOf(w.got[n-1])
							w.cuts = append(w.cuts, last)
							w.interest.Reported = w.reportedAt(last)
							if rnd.IntN(2) == 0 {
								w.interest.Reported = 0 // the client has stored the cursor without its ReportedGaps
							}
							w.join(t, l, &last)
						}
					}
				}
				often = 1 << 30
				f.set(func() { f.down, f.gone = nil, 0 })
				for range 20 {
					grow(5)
					time.Sleep(10 * time.Second)
					store()
				}
				atEnd := func(w *modelClient) bool {
					return w.Cursor() == cursorOf(len(f.all)) && w.at.next != catchingUp
				}
				for range 3000 { // a reader waits up to five seconds at each permanent gap
					synctest.Wait()
					done := true
					for _, w := range clients {
						for w.next(t, l, f, accepted) {
						}
						done = done && atEnd(w)
					}
					if done {
						break
					}
					time.Sleep(time.Second)
				}
				synctest.Wait()
				for _, w := range clients {
					w.check(t, f, accepted)
					if !atEnd(w) {
						t.Errorf("a client stopped at %q, want to reach block %d", w.Cursor(), len(f.all))
					}
					w.Close()
				}
				s := l.Stats()
				if s.Readers != 0 || s.CatchingUp != 0 || s.Groups != 0 ||
					len(l.pages) > 0 || queuedPagesOf(l) > 0 || heldPagesOf(l) > 0 {
					t.Errorf("stats are %+v after all readers were closed, want no readers and no pages", s)
				}
				if int(s.Blocks) != len(accepted) {
					t.Errorf("stats count %d blocks, but %d were reported to Events.Block", s.Blocks, len(accepted))
				}
				total.EndedByGap += s.EndedByGap
				total.GapsFound += s.GapsFound
				total.GapsRepaired += s.GapsRepaired
				total.CaughtUp += s.CaughtUp
			})
		})
	}
	t.Logf("%d blocks found early, %d late; %d gaps unrepaired, %d repaired without ending a reader; stats %+v",
		early, late, unrepaired, unnoticed, total)
	if early < seeds/2 || min(late, unrepaired, unnoticed, int(total.EndedByGap)) < 5*seeds/2 {
		t.Errorf("the random runs cover too few gaps, see the numbers above")
	}
}

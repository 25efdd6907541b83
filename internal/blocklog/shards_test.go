package blocklog

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"
)

// piece is a block of a chain with shards. Its number is its place in the order of all blocks, from 1 on.
type piece struct {
	number int
	Place
}

func cursorOfPiece(p piece) string { return cursorOf(p.number) }

// wood grows chains that split and merge at random.
type wood struct {
	rnd    *rand.Rand
	grown  int
	leaves []Place // as they are now
	shown  []bool  // whether they have had a block since they split off; before, they neither split nor merge
}

func newWood(rnd *rand.Rand) *wood {
	return &wood{rnd: rnd, leaves: []Place{{-1, whole, 10}, {0, whole, 20}, {1, whole, 30}}, shown: []bool{true, true, true}}
}

func (w *wood) next() piece {
	i := w.rnd.IntN(len(w.leaves))
	p := w.leaves[i]
	p.SeqNo++
	kin := slices.IndexFunc(w.leaves, func(o Place) bool {
		return p.Shard != whole && o.Workchain == p.Workchain && o.Shard == sibling(p.Shard)
	})
	n := w.rnd.IntN(20)
	switch {
	case p.Workchain < 0 || !w.shown[i] || n > 3:
	case n < 2 && depth(p.Shard) < 3:
		half := lowest(p.Shard) / 2
		w.leaves = append(w.leaves, Place{p.Workchain, p.Shard + half, p.SeqNo - 1})
		w.shown = append(w.shown, false)
		p.Shard -= half
	case n < 4 && kin >= 0 && w.shown[kin]:
		p.SeqNo = max(p.SeqNo, w.leaves[kin].SeqNo+1)
		p.Shard = parent(p.Shard)
		w.leaves[i] = p
		w.leaves, w.shown = slices.Delete(w.leaves, kin, kin+1), slices.Delete(w.shown, kin, kin+1)
		if kin < i {
			i--
		}
	}
	w.leaves[i], w.shown[i] = p, true
	w.grown++
	return piece{w.grown, p}
}

// forest is a scripted source of a chain with shards.
type forest struct {
	mu      sync.Mutex
	all     []piece
	passes  map[int]bool // what Follow passes over
	lacks   map[int]bool // what is not stored
	recents int
	down    error
	gone    bool // the next Follow fails with errGone
	replay  int
	change  chan struct{}
	follows []string
	pages   []string
	asked   []string // the cursors of each Between
	looked  []int    // the block of each Before
	paging  chan struct{}
	between func(ctx context.Context) ([]piece, error) // instead, if it is there
	before  func(ctx context.Context) ([]piece, error) // instead, in a shard, if it is there
}

func newForest(blocks ...piece) *forest {
	return &forest{all: blocks, passes: map[int]bool{}, lacks: map[int]bool{}, recents: recentBlocks, change: make(chan struct{})}
}

func (f *forest) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.change)
	f.change = make(chan struct{})
}

// grow adds blocks of (workchain, seq_no) with the shard whole, or as they are.
func (f *forest) grow(places ...Place) {
	f.set(func() {
		for _, p := range places {
			if p.Shard == 0 {
				p.Shard = whole
			}
			f.all = append(f.all, piece{len(f.all) + 1, p})
		}
	})
}

// without grows, and has Follow pass over some of the new blocks.
func (f *forest) without(missing []int, places ...Place) {
	f.mu.Lock()
	for _, n := range missing {
		f.passes[n] = true
	}
	f.mu.Unlock()
	f.grow(places...)
}

func (f *forest) source() Source[piece] {
	return Source[piece]{
		Recent: func(_ context.Context, n int) ([]piece, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.storedBefore(len(f.all)+1, min(n, f.recents), func(piece) bool { return true }), f.down
		},
		Follow: f.follow,
		Page: func(ctx context.Context, after string, n int) ([]piece, error) {
			f.mu.Lock()
			f.pages = append(f.pages, after)
			s := f.stored(after, n, func(piece) bool { return true })
			paging := f.paging
			f.mu.Unlock()
			if paging != nil {
				select {
				case <-paging:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return s, nil
		},
		Between: func(ctx context.Context, after string, before piece, n int) ([]piece, error) {
			f.mu.Lock()
			f.asked = append(f.asked, after)
			instead := f.between
			s := f.stored(after, n, func(p piece) bool { return p.Workchain == before.Workchain && p.number < before.number })
			f.mu.Unlock()
			if instead != nil {
				return instead(ctx)
			}
			return s, nil
		},
		Before: func(ctx context.Context, before piece, shard *uint64, n int) ([]piece, error) {
			f.mu.Lock()
			f.looked = append(f.looked, before.number)
			instead := f.before
			s := f.storedBefore(before.number, n, func(p piece) bool {
				return shard == nil || p.Workchain == before.Workchain && p.Shard == *shard
			})
			f.mu.Unlock()
			if instead != nil && shard != nil {
				return instead(ctx)
			}
			return s, nil
		},
		Cursor: cursorOfPiece,
		Gone:   func(err error) bool { return errors.Is(err, errGone) },
		Place:  func(p piece) Place { return p.Place },
	}
}

// stored returns the first n stored blocks past a cursor.
func (f *forest) stored(after string, n int, wanted func(piece) bool) (s []piece) {
	from := sort.Search(len(f.all), func(i int) bool { return cursorOfPiece(f.all[i]) > after })
	for _, p := range f.all[from:] {
		if len(s) == n {
			break
		}
		if !f.lacks[p.number] && wanted(p) {
			s = append(s, p)
		}
	}
	return s
}

// storedBefore returns the last n stored blocks before one.
func (f *forest) storedBefore(number, n int, wanted func(piece) bool) (s []piece) {
	for i := min(number-1, len(f.all)) - 1; i >= 0 && len(s) < n; i-- {
		if p := f.all[i]; !f.lacks[p.number] && wanted(p) {
			s = append(s, p)
		}
	}
	slices.Reverse(s)
	return s
}

func (f *forest) follow(ctx context.Context, after string) iter.Seq2[piece, error] {
	return func(yield func(piece, error) bool) {
		at, _ := strconv.Atoi(after)
		f.mu.Lock()
		f.follows = append(f.follows, after)
		at = max(0, at-f.replay)
		gone := f.gone
		f.gone = false
		f.mu.Unlock()
		if gone {
			yield(piece{}, errGone)
			return
		}
		for {
			f.mu.Lock()
			down, change, next := f.down, f.change, piece{}
			for ; at < len(f.all) && next.number == 0; at++ {
				if !f.passes[at+1] {
					next = f.all[at]
				}
			}
			f.mu.Unlock()
			switch {
			case down != nil:
				yield(piece{}, down)
				return
			case next.number > 0:
				if !yield(next, nil) {
					return
				}
			default:
				select {
				case <-change:
				case <-ctx.Done():
					yield(piece{}, ctx.Err())
					return
				}
			}
		}
	}
}

// of matches the blocks of some workchains, all if there are none.
func of(workchains ...int32) Interest[piece] {
	matches := func(w int32) bool { return len(workchains) == 0 || slices.Contains(workchains, w) }
	i := Interest[piece]{Key: "of", Concerns: matches}
	for _, w := range workchains {
		i.Key += " " + strconv.Itoa(int(w))
	}
	i.Eval = func(p piece) []byte {
		if !matches(p.Workchain) {
			return nil
		}
		return []byte(strconv.Itoa(p.number))
	}
	return i
}

func openForest(t *testing.T, f *forest, o Options[piece]) *Log[piece] {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l := New(f.source(), o)
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Error("Close:", err)
		}
	})
	l.Start()
	return l
}

func enter(t *testing.T, l *Log[piece], i Interest[piece], after ...int) *Reader[piece] {
	t.Helper()
	if len(after) > 0 {
		cursor := cursorOf(after[0])
		i.After = &cursor
	}
	r, err := l.Join(i)
	if err != nil {
		t.Fatal("Join:", err)
	}
	return r
}

// has takes what is ready.
func has(t *testing.T, r *Reader[piece], want ...int) {
	t.Helper()
	if got, err := taken(r); err != nil || !slices.Equal(got, want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
}

// hasAll takes what comes until a whole second brings nothing.
func hasAll(t *testing.T, r *Reader[piece], want ...int) {
	t.Helper()
	var all []int
	for idle := 0; idle < 2; {
		got, err := taken(r)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, got...); len(got) == 0 {
			idle++
		}
		time.Sleep(time.Second)
	}
	if !slices.Equal(all, want) {
		t.Fatalf("read %v, want %v", all, want)
	}
}

func taken(r *Reader[piece]) (got []int, err error) {
	for {
		item, err := r.Next()
		if err != nil || item.Payload == nil {
			return got, err
		}
		n, _ := strconv.Atoi(string(item.Payload))
		got = append(got, n)
	}
}

// hasGap expects the reader's end after a block, whose cursor it resumes from.
func hasGap(t *testing.T, r *Reader[piece], after int) {
	t.Helper()
	for range 2 {
		got, err := taken(r)
		var lost *Lost
		if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || lost.Cursor != cursorOf(after) || r.Cursor() != lost.Cursor || got != nil {
			t.Fatalf("read %v, %v, at %q; want a gap after block %d", got, err, r.Cursor(), after)
		}
	}
}

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

// A shardBlock is a block of a chain with shards. Its number is its position among all blocks, from 1 on.
type shardBlock struct {
	number int
	Place
}

func cursorOfShardBlock(p shardBlock) string { return cursorOf(p.number) }

// randomShards creates chains that split and merge at random.
type randomShards struct {
	rnd   *rand.Rand
	grown int
	heads []Place // newest block of each shard
	shown []bool  // whether each shard has had a block since it split off; before that, it neither splits nor merges
}

func newRandomShards(rnd *rand.Rand) *randomShards {
	return &randomShards{
		rnd:   rnd,
		heads: []Place{{-1, wholeShard, 10}, {0, wholeShard, 20}, {1, wholeShard, 30}},
		shown: []bool{true, true, true},
	}
}

// next returns the next block of a random shard.
func (w *randomShards) next() shardBlock {
	i := w.rnd.IntN(len(w.heads))
	p := w.heads[i]
	p.SeqNo++
	kin := slices.IndexFunc(w.heads, func(o Place) bool {
		return p.Shard != wholeShard && o.Workchain == p.Workchain && o.Shard == sibling(p.Shard)
	})
	n := w.rnd.IntN(20)
	switch {
	case p.Workchain < 0 || !w.shown[i] || n > 3:
	case n < 2 && depth(p.Shard) < 3:
		half := lowestBit(p.Shard) / 2
		w.heads = append(w.heads, Place{p.Workchain, p.Shard + half, p.SeqNo - 1})
		w.shown = append(w.shown, false)
		p.Shard -= half
	case n < 4 && kin >= 0 && w.shown[kin]:
		p.SeqNo = max(p.SeqNo, w.heads[kin].SeqNo+1)
		p.Shard = parent(p.Shard)
		w.heads[i] = p
		w.heads, w.shown = slices.Delete(w.heads, kin, kin+1), slices.Delete(w.shown, kin, kin+1)
		if kin < i {
			i--
		}
	}
	w.heads[i], w.shown[i] = p, true
	w.grown++
	return shardBlock{w.grown, p}
}

// A shardSource is a scripted source of a chain with shards.
type shardSource struct {
	mu      sync.Mutex
	all     []shardBlock
	passes  map[int]bool                                    // numbers of the blocks that Follow skips
	lacks   map[int]bool                                    // numbers of the blocks that are not stored
	recents int                                             // maximum number of blocks that Recent returns
	down    error                                           // returned by Recent and Follow
	gone    int                                             // number of the next Follows that fail with errGone
	replay  int                                             // number of blocks that each Follow repeats
	change  chan struct{}                                   // closed at the next change
	follows []string                                        // cursor of each Follow
	pages   []string                                        // cursor of each Page
	asked   []string                                        // cursor of each Between
	looked  []int                                           // number of the block of each Before
	most    int                                             // largest number of blocks of a Before
	paging  chan struct{}                                   // if not nil, Page waits until it is closed
	between func(ctx context.Context) ([]shardBlock, error) // if not nil, replaces Between
	before  func(ctx context.Context) ([]shardBlock, error) // if not nil, replaces Before in a single shard
}

func newShardSource(blocks ...shardBlock) *shardSource {
	return &shardSource{
		all: blocks, passes: map[int]bool{}, lacks: map[int]bool{}, recents: recentBlocks, change: make(chan struct{}),
	}
}

// set changes the source under its lock and wakes Follow.
func (f *shardSource) set(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.change)
	f.change = make(chan struct{})
}

// grow adds blocks. A block without a shard belongs to the whole workchain.
func (f *shardSource) grow(places ...Place) {
	f.set(func() {
		for _, p := range places {
			if p.Shard == 0 {
				p.Shard = wholeShard
			}
			f.all = append(f.all, shardBlock{len(f.all) + 1, p})
		}
	})
}

// growSkipped adds blocks. Follow skips those whose numbers are in missing.
func (f *shardSource) growSkipped(missing []int, places ...Place) {
	f.mu.Lock()
	for _, n := range missing {
		f.passes[n] = true
	}
	f.mu.Unlock()
	f.grow(places...)
}

func (f *shardSource) source() Source[shardBlock] {
	return Source[shardBlock]{
		Recent: func(_ context.Context, n int) ([]shardBlock, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.storedBefore(len(f.all)+1, min(n, f.recents), func(shardBlock) bool { return true }), f.down
		},
		Follow: f.follow,
		Page: func(ctx context.Context, after string, n int) ([]shardBlock, error) {
			f.mu.Lock()
			f.pages = append(f.pages, after)
			s := f.stored(after, n, func(shardBlock) bool { return true })
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
		Between: func(ctx context.Context, after string, before shardBlock, n int) ([]shardBlock, error) {
			f.mu.Lock()
			f.asked = append(f.asked, after)
			instead := f.between
			s := f.stored(after, n, func(p shardBlock) bool {
				return p.Workchain == before.Workchain && p.number < before.number
			})
			f.mu.Unlock()
			if instead != nil {
				return instead(ctx)
			}
			return s, nil
		},
		Before: func(ctx context.Context, before shardBlock, shard *uint64, n int) ([]shardBlock, error) {
			f.mu.Lock()
			f.looked = append(f.looked, before.number)
			f.most = max(f.most, n)
			instead := f.before
			s := f.storedBefore(before.number, n, func(p shardBlock) bool {
				return shard == nil || p.Workchain == before.Workchain && p.Shard == *shard
			})
			f.mu.Unlock()
			if instead != nil && shard != nil {
				return instead(ctx)
			}
			return s, nil
		},
		Cursor: cursorOfShardBlock,
		Gone:   func(err error) bool { return errors.Is(err, errGone) },
		Place:  func(p shardBlock) Place { return p.Place },
	}
}

// stored returns the first n wanted blocks that are stored after the cursor.
func (f *shardSource) stored(after string, n int, wanted func(shardBlock) bool) (s []shardBlock) {
	from := sort.Search(len(f.all), func(i int) bool { return cursorOfShardBlock(f.all[i]) > after })
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

// storedBefore returns the last n wanted blocks that are stored before the block with the number.
func (f *shardSource) storedBefore(number, n int, wanted func(shardBlock) bool) (s []shardBlock) {
	for i := min(number-1, len(f.all)) - 1; i >= 0 && len(s) < n; i-- {
		if p := f.all[i]; !f.lacks[p.number] && wanted(p) {
			s = append(s, p)
		}
	}
	slices.Reverse(s)
	return s
}

func (f *shardSource) follow(ctx context.Context, after string) iter.Seq2[shardBlock, error] {
	return func(yield func(shardBlock, error) bool) {
		at, _ := strconv.Atoi(after)
		f.mu.Lock()
		f.follows = append(f.follows, after)
		at = max(0, at-f.replay)
		gone := f.gone > 0
		f.gone = max(0, f.gone-1)
		f.mu.Unlock()
		if gone {
			yield(shardBlock{}, errGone)
			return
		}
		for {
			f.mu.Lock()
			down, change, next := f.down, f.change, shardBlock{}
			for ; at < len(f.all) && next.number == 0; at++ {
				if !f.passes[at+1] {
					next = f.all[at]
				}
			}
			f.mu.Unlock()
			switch {
			case down != nil:
				yield(shardBlock{}, down)
				return
			case next.number > 0:
				if !yield(next, nil) {
					return
				}
			default:
				select {
				case <-change:
				case <-ctx.Done():
					yield(shardBlock{}, ctx.Err())
					return
				}
			}
		}
	}
}

// blocksOf returns an Interest that matches the blocks of the given workchains, or all blocks if none is given.
func blocksOf(workchains ...int32) Interest[shardBlock] {
	matches := func(w int32) bool { return len(workchains) == 0 || slices.Contains(workchains, w) }
	i := Interest[shardBlock]{Key: "of", Concerns: matches}
	for _, w := range workchains {
		i.Key += " " + strconv.Itoa(int(w))
	}
	i.Eval = func(p shardBlock) []byte {
		if !matches(p.Workchain) {
			return nil
		}
		return []byte(strconv.Itoa(p.number))
	}
	return i
}

// openShards returns a started Log of f that is closed when the test ends.
func openShards(t *testing.T, f *shardSource, o Options[shardBlock]) *Log[shardBlock] {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	l := New(f.source(), o)
	t.Cleanup(func() {
		if err := l.Close(context.Background()); err != nil {
			t.Errorf("Close returned error %v", err)
		}
	})
	l.Start()
	return l
}

// joinAt joins a reader after the block with the given number, or without a cursor if no number is given.
func joinAt(t *testing.T, l *Log[shardBlock], i Interest[shardBlock], after ...int) *Reader[shardBlock] {
	t.Helper()
	if len(after) > 0 {
		cursor := cursorOf(after[0])
		i.After = &cursor
	}
	r, err := l.Join(i)
	if err != nil {
		t.Fatalf("Join returned error %v", err)
	}
	return r
}

// expectNow expects that exactly the blocks want are available now.
func expectNow(t *testing.T, r *Reader[shardBlock], want ...int) {
	t.Helper()
	if got, err := takeAll(r); err != nil || !slices.Equal(got, want) {
		t.Fatalf("read blocks %v and error %v, want blocks %v", got, err, want)
	}
}

// expectEventually expects exactly the blocks want. It reads until no block arrives for one second.
func expectEventually(t *testing.T, r *Reader[shardBlock], want ...int) {
	t.Helper()
	var all []int
	for idle := 0; idle < 2; {
		got, err := takeAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, got...); len(got) == 0 {
			idle++
		}
		time.Sleep(time.Second)
	}
	if !slices.Equal(all, want) {
		t.Fatalf("read blocks %v, want %v", all, want)
	}
}

// takeAll reads the blocks that are available now.
func takeAll(r *Reader[shardBlock]) (got []int, err error) {
	for {
		item, err := r.Next()
		if err != nil || item.Payload == nil {
			return got, err
		}
		n, _ := strconv.Atoi(string(item.Payload))
		got = append(got, n)
	}
}

// expectGap expects that the reader has ended with ErrGap, and that its client must resume after the given block.
func expectGap(t *testing.T, r *Reader[shardBlock], after int) {
	t.Helper()
	for range 2 {
		got, err := takeAll(r)
		var lost *Lost
		if !errors.As(err, &lost) || !errors.Is(err, ErrGap) || lost.Cursor != cursorOf(after) ||
			r.Cursor() != lost.Cursor || got != nil {
			t.Fatalf("read blocks %v and error %v at %q, want a gap after block %d", got, err, r.Cursor(), after)
		}
	}
}

package source

import (
	"context"
	"sync"

	"github.com/chaingql/chaingql"
)

// queueSize is the number of blocks that can be queued for one subscriber. It is larger than any burst
// in the benchmark, so that a slow subscriber does not delay the others.
const queueSize = 64

// A Feed calls Follow once and delivers the new blocks to all subscribers. It is for servers that have
// no such mechanism themselves. It converts each block only once, not for each subscriber.
type Feed[T any] struct {
	source  *Source
	convert func(chaingql.Block) T
	once    sync.Once

	mu   sync.Mutex
	subs map[*sub[T]]struct{}
}

type sub[T any] struct {
	to      chan T
	matches func(*chaingql.Block) bool
	left    <-chan struct{}
}

// NewFeed returns a feed of the blocks in s. It calls Follow when Subscribe is first called. The
// function convert converts each block into the type that subscribers receive.
func NewFeed[T any](s *Source, convert func(chaingql.Block) T) *Feed[T] {
	return &Feed[T]{source: s, convert: convert, subs: map[*sub[T]]struct{}{}}
}

// Subscribe returns a channel that delivers new blocks until ctx is done. It delivers only blocks for
// which matches returns true. The channel is never closed.
func (f *Feed[T]) Subscribe(ctx context.Context, matches func(*chaingql.Block) bool) <-chan T {
	f.once.Do(func() {
		newest, err := f.source.Blocks(context.Background(), chaingql.BlocksQuery{Last: 1})
		if err != nil || len(newest) == 0 {
			panic("source: the chain has no blocks")
		}
		go f.run(newest[0].Cursor)
	})
	s := &sub[T]{make(chan T, queueSize), matches, ctx.Done()}
	f.mu.Lock()
	f.subs[s] = struct{}{}
	f.mu.Unlock()
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		delete(f.subs, s)
		f.mu.Unlock()
	})
	return s.to
}

// run delivers blocks until the process exits, because Follow never ends with this chain.
func (f *Feed[T]) run(after chaingql.Cursor) {
	for b := range f.source.Follow(context.Background(), after) {
		v := f.convert(b)
		f.mu.Lock()
		for s := range f.subs {
			if !s.matches(&b) {
				continue
			}
			select {
			case s.to <- v:
			case <-s.left:
			}
		}
		f.mu.Unlock()
	}
}

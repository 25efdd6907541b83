package source

import (
	"context"
	"sync"

	"github.com/chaingql/chaingql"
)

// waiting is the number of blocks that can be queued for one subscriber. It exceeds any measured
// burst, so that no block is dropped or delayed.
const waiting = 64

// A Feed delivers the new blocks of one Follow to all subscribers, for peers without such a
// mechanism. Each block is converted once.
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

// NewFeed returns a feed that calls Follow at its first Subscribe.
func NewFeed[T any](s *Source, convert func(chaingql.Block) T) *Feed[T] {
	return &Feed[T]{source: s, convert: convert, subs: map[*sub[T]]struct{}{}}
}

// Subscribe delivers new blocks that match until ctx is done. The channel is never closed.
func (f *Feed[T]) Subscribe(ctx context.Context, matches func(*chaingql.Block) bool) <-chan T {
	f.once.Do(func() {
		newest, err := f.source.Blocks(context.Background(), chaingql.BlocksQuery{Last: 1})
		if err != nil || len(newest) == 0 {
			panic("source: an empty chain")
		}
		go f.run(newest[0].Cursor)
	})
	s := &sub[T]{make(chan T, waiting), matches, ctx.Done()}
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

// run delivers blocks until the process exits; this chain's Follow never ends.
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

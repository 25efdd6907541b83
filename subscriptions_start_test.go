package chaingql_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A downBackend is a chain. Its Blocks and Follow fail while down is true. Its Blocks takes the time slow.
type downBackend struct {
	*memchain.Chain
	down atomic.Bool
	slow atomic.Int64 // nanoseconds
}

func (b *downBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	time.Sleep(time.Duration(b.slow.Load()))
	if b.down.Load() {
		return nil, errors.New("down")
	}
	return b.Chain.Blocks(ctx, q)
}

func (b *downBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	if !b.down.Load() {
		return b.Chain.Follow(ctx, after)
	}
	return func(yield func(chaingql.Block, error) bool) { yield(chaingql.Block{}, errors.New("down")) }
}

func TestSubscriptionsWithoutAStartPositionReceiveServiceUnavailable(t *testing.T) {
	blocks := weave(strings.Repeat("m", 30))
	for name, tt := range map[string]struct{ fail, repair func(*downBackend) }{

		"backend down at the start": {
			func(b *downBackend) { b.down.Store(true) },
			func(b *downBackend) { b.down.Store(false) },
		},
		"backend slow at the start": {
			func(b *downBackend) { b.slow.Store(int64(4 * time.Second)) },
			func(b *downBackend) { b.slow.Store(0) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &downBackend{Chain: chainOf(t, blocks[:5])}
				tt.fail(b)
				h, _ := newHandler(t, b, chaingql.Options{})
				n := serve(t, mounted(h))
				streams := []*events{n.stream(t, allBlocks)}
				for i := range 12 {
					time.Sleep(300 * time.Millisecond)
					commit(t, b.Chain, blocks[5+i])
					streams = append(streams, n.stream(t, allBlocks))
				}
				time.Sleep(time.Second)
				tt.repair(b)
				time.Sleep(30 * time.Second)
				commit(t, b.Chain, blocks[17:]...)
				synctest.Wait()
				for i, e := range streams {
					f := &follower{t: t}
					for len(e.lines) > 0 {
						f.take(<-e.lines)
					}
					switch want := orders(blocks[5+i:]); {
					case slices.Equal(f.got, want) && len(f.codes) == 0:
					case len(f.got) == 0 && slices.Equal(f.codes, []string{"SERVICE_UNAVAILABLE"}):
					default:
						t.Errorf("stream %d, which started before %d blocks, received %d of them and the errors %q",
							i, len(want), len(f.got), f.codes)
					}
				}
				f := &follower{t: t, n: n, document: allBlocks}
				f.connect(1)
				if len(f.codes) > 0 {
					t.Errorf("a later subscription received the errors %q", f.codes)
				}
			})
		})
	}
}

// A polledBackend is a chain that implements Follow with Poll.
type polledBackend struct{ *memchain.Chain }

func (b polledBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, b.Blocks, cmp.Or(after, "0"), 10*time.Millisecond)
}

// An emptiableBackend has pruned all blocks up to pruned, even the newest one, which the Backend contract forbids.
type emptiableBackend struct {
	*memchain.Chain
	pruned chaingql.Cursor
}

func (b emptiableBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	switch {
	case q.After == "":
		q.After = b.pruned
	case q.After < b.pruned:
		return nil, chaingql.ErrCursorTooOld
	}
	return b.Chain.Blocks(ctx, q)
}

func (b emptiableBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	if after >= b.pruned {
		return b.Chain.Follow(ctx, after)
	}
	return func(yield func(chaingql.Block, error) bool) { yield(chaingql.Block{}, chaingql.ErrCursorTooOld) }
}

func TestSubscriptionsToAPrunedQuietChainLoseNoNewBlock(t *testing.T) {
	blocks := weave("mammam")
	for name, tt := range map[string]struct {
		backend func(*memchain.Chain) chaingql.Backend
		refuses bool
	}{
		"backend that notifies Follow": {func(c *memchain.Chain) chaingql.Backend { return c }, false},
		"backend that polls": {func(c *memchain.Chain) chaingql.Backend {
			return polledBackend{c}
		}, false},
		"backend without its newest block": {func(c *memchain.Chain) chaingql.Backend {
			return emptiableBackend{c, blocks[2].Cursor}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chain := chainOf(t, blocks[:3])
				chain.Prune("~")
				h, _ := newHandler(t, tt.backend(chain), chaingql.Options{})
				n := serve(t, mounted(h))
				early := n.stream(t, allBlocks)
				time.Sleep(time.Minute)
				later := n.stream(t, allBlocks)
				synctest.Wait()
				commit(t, chain, blocks[3])
				time.Sleep(time.Minute)
				commit(t, chain, blocks[4:]...)
				time.Sleep(time.Minute)
				for what, e := range map[string]*events{"early": early, "later": later} {
					f := &follower{t: t, n: n, document: allBlocks}
					for len(e.lines) > 0 {
						f.take(<-e.lines)
					}
					switch {
					case tt.refuses && len(f.got) == 0 && len(f.codes) == 1:
					case !tt.refuses && slices.Equal(f.got, orders(blocks[3:])) && len(f.codes) == 0:
					default:
						t.Errorf("the %s subscription received %q and the errors %q", what, f.got, f.codes)
					}
				}
			})
		})
	}
}

// A lateBackend is a chain. Its Follow calls fill first.
type lateBackend struct {
	*memchain.Chain
	fill func()
}

func (b lateBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	b.fill()
	return b.Chain.Follow(ctx, after)
}

func TestSubscriptionEndsIfAnEmptyChainIsPrunedBeforeFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mammam")
		chain := memchain.New()
		h, _ := newHandler(t, lateBackend{chain, sync.OnceFunc(func() {
			commit(t, chain, blocks[:3]...)
			chain.Prune(blocks[1].Cursor)
		})}, chaingql.Options{})
		n := serve(t, mounted(h))
		f := &follower{t: t, n: n, document: allBlocks}
		f.connect(3)
		if len(f.got) > 0 || !slices.Equal(f.codes, []string{"STREAM_GAP"}) {
			t.Errorf("the subscription received %q and the errors %q, although the first block was pruned",
				f.got, f.codes)
		}
		time.Sleep(10 * time.Second) // the Handler follows again
		e := n.stream(t, allBlocks)
		synctest.Wait()
		commit(t, chain, blocks[3:]...)
		time.Sleep(time.Minute)
		g := &follower{t: t}
		for len(e.lines) > 0 {
			g.take(<-e.lines)
		}
		if !slices.Equal(g.got, orders(blocks[3:])) || len(g.codes) > 0 {
			t.Errorf("a later subscription received %q and the errors %q", g.got, g.codes)
		}
	})
}

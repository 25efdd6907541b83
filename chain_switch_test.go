package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// A switchingBackend replaces its chain at random moments before, during and after its calls.
type switchingBackend struct {
	*memchain.Chain
	blocks []chaingql.Block

	mu    sync.Mutex
	rnd   *rand.Rand
	left  int  // number of replacements that calls may still make
	sites int  // set of the moments at which they may make them
	epoch byte // number of the epoch
	next  int  // index of the chain's next block in blocks
}

func newSwitchingBackend(seed uint64) *switchingBackend {
	b := &switchingBackend{Chain: memchain.New(), blocks: randomBlocks(seed, 60), rnd: rand.New(rand.NewPCG(seed, 5))}
	b.replace()
	return b
}

// replace makes a chain that is shorter or longer than the last one.
func (b *switchingBackend) replace() {
	b.epoch++
	b.next = b.rnd.IntN(len(b.blocks) / 2)
	b.Replace(epochName(b.epoch))
	if err := b.Append(stamped(b.epoch, b.blocks[:b.next])...); err != nil {
		panic(err)
	}
}

func (b *switchingBackend) mayReplace(site int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left > 0 && b.sites&(1<<site) != 0 && b.rnd.IntN(4) == 0 {
		b.left--
		b.replace()
	}
}

// grow appends a block and returns its cursor with the epoch.
func (b *switchingBackend) grow() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	block := stamped(b.epoch, b.blocks[b.next:b.next+1])[0]
	b.next++
	if err := b.Append(block); err != nil {
		panic(err)
	}
	return string(block.Cursor) + "~" + epochName(b.epoch)
}

// setLeft sets the number of replacements that calls may make, and the moments at which they may make them.
func (b *switchingBackend) setLeft(n, sites int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.sites = n, sites
}

// newest returns the cursor of the newest block, with the epoch, and that epoch.
func (b *switchingBackend) newest() (cursor, epoch string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	epoch = epochName(b.epoch)
	if b.next == 0 {
		return "0~" + epoch, epoch
	}
	return string(b.blocks[b.next-1].Cursor) + "~" + epoch, epoch
}

func (b *switchingBackend) Epoch() string {
	defer b.mayReplace(0)
	return b.Chain.Epoch()
}

func (b *switchingBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	b.mayReplace(1)
	defer b.mayReplace(2)
	return b.Chain.Blocks(ctx, q)
}

func (b *switchingBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	b.mayReplace(3)
	defer b.mayReplace(4)
	blocks := b.Chain.Follow(ctx, after)
	return func(yield func(chaingql.Block, error) bool) {
		for block, err := range blocks {
			b.mayReplace(5)
			if !yield(block, err) {
				return
			}
			b.mayReplace(6)
		}
	}
}

// Clients follow a chain that is replaced at any moment. Each of them soon receives the blocks of the newest chain.
func TestChainReplacedDuringACallIsFollowedSoon(t *testing.T) {
	var ended atomic.Int64
	for seed := range testkit.Seeds(t, 40) {
		synctest.Test(t, func(t *testing.T) {
			b := newSwitchingBackend(seed)
			h, _ := newHandler(t, b, chaingql.Options{WindowSize: 5})
			n := serve(t, mounted(h))
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			// In every second run, no client reads a page that could notice a new chain: all start at the newest block.
			kinds := 1 + int(seed%2)*2
			received := make([]atomic.Pointer[string], 1+b.rnd.IntN(6))
			for i := range received {
				all.Go(func() {
					for ctx.Err() == nil {
						ended.Add(int64(followSwitches(t, ctx, n, b, i%kinds, &received[i])))
					}
				})
			}
			for round := range 6 {
				b.setLeft(1+round%3, rand.IntN(1<<7))
				for range 4 {
					if seed%3 == 0 {
						b.Interrupt(nil)
					}
					b.grow()
					time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
					if seed%4 == 0 {
						readEpoch(t, h, "")
					}
				}
				b.setLeft(0, 0)
				time.Sleep(time.Second)
				want := b.grow()
				time.Sleep(100 * time.Millisecond)
				for i := range received {
					got := received[i].Load()
					if got == nil || *got != want {
						t.Errorf("seed %d, round %d: subscription %d did not receive %s", seed, round, i, want)
					}
				}
			}
			stop()
			all.Wait()
		})
	}
	t.Logf("%d streams ended with EPOCH_CHANGED", ended.Load())
	if ended.Load() < 300 {
		t.Errorf("the test covers too little: %d streams ended with EPOCH_CHANGED", ended.Load())
	}
}

// followSwitches reads one stream to its end. It stores the cursor of each block in received, and returns 1 if the
// stream ended with EPOCH_CHANGED.
func followSwitches(
	t *testing.T, ctx context.Context, n *network, b *switchingBackend, kind int, received *atomic.Pointer[string],
) (changed int) {
	var args map[string]any
	document, epoch := "subscription{blocks{id cursor}}", ""
	if kind > 0 {
		document = "subscription($after:String){blocks(after:$after){id cursor}}"
		args = map[string]any{"after": ""}
	}
	if kind == 2 {
		args["after"], epoch = b.newest()
	}
	client := n.client()
	defer client.CloseIdleConnections()
	got := 0
	for response := range readEvents(ctx, client, "text/event-stream", body(document, args)) {
		var r struct {
			Data   struct{ Blocks struct{ ID, Cursor string } }
			Errors []struct{ Extensions struct{ Code, Cursor string } }
		}
		if json.Unmarshal(response, &r) != nil {
			return changed // the client has left
		}
		if len(r.Errors) > 0 {
			if r.Errors[0].Extensions.Code != "EPOCH_CHANGED" {
				t.Errorf("a stream %v ended with %s", args, response)
				return 0
			}
			if _, now := b.newest(); got == 0 && now == epoch {
				t.Errorf("a cursor of the epoch %s was refused, although it is the newest one", epoch)
			}
			changed = 1
			continue
		}
		got++
		from := epochOf(t, fmt.Sprint("stream ", args), r.Data.Blocks.ID, r.Data.Blocks.Cursor)
		if epoch == "" {
			epoch = from
		}
		if from != epoch {
			t.Errorf("a stream of epoch %s received %s", epoch, r.Data.Blocks.Cursor)
		}
		received.Store(&r.Data.Blocks.Cursor)
	}
	return changed
}

package backendtest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/chaingql/chaingql"
)

// correctDuringAppend calls Blocks and Follow while blocks are appended. A page must have
// all matching blocks that were appended before the call, in order. It may also have
// blocks that are appended during the call.
func correctDuringAppend(t *trial) {
	t.fill(200, 400)
	var (
		all     = append(t.stored[:200:200], t.coming...)
		begun   atomic.Int64 // number of blocks whose Append has started: a page may have them
		done    atomic.Int64 // number of blocks whose Append has returned: a page must have them
		running sync.WaitGroup
		read    = make(chan struct{}) // receives a value when a reader is about to call Blocks
		written = make(chan struct{}) // closed when all blocks are appended
	)
	begun.Store(200)
	done.Store(200)
	first, middle := t.follow(""), t.follow(all[150].Cursor)

	running.Go(func() {
		defer close(written)
		rng := rand.New(rand.NewPCG(3, 4))
		for n := 200; n < len(all); {
			select { // so that each Append runs at the same time as a call of Blocks
			case <-read:
			case <-t.ctx.Done(): // the readers have given up
				return
			}
			next := min(n+1+rng.IntN(8), len(all))
			begun.Store(int64(next))
			if err := t.Append(all[n:next:next]); err != nil {
				t.Errorf("Harness.Append failed: %v", err)
				return
			}
			done.Store(int64(next))
			n = next
		}
	})
	for reader := range 4 {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(5, uint64(reader)))
			for more := 10; more > 0; {
				select {
				case read <- struct{}{}:
				case <-written:
					more-- // after all blocks are appended, read some more pages
				}
				q := randomQuery(rng, all, []chaingql.Cursor{all[len(all)-1].Cursor})
				before := int(done.Load())
				page, err := t.readPage(q, mayDoEither)
				if err != nil {
					t.Errorf("%s failed while blocks were appended: %v", describe(q), err)
				} else if fault := loadedPageFault(all[:begun.Load()], before, q, page); fault != "" {
					t.Errorf("%s, while blocks were appended, %s", describe(q), fault)
				}
			}
		})
	}
	if t.SetBalance != nil {
		running.Go(func() {
			addr := account(0, "one")
			for i := range int64(100) {
				what := fmt.Sprintf("Balance(%v), while blocks were appended,", addr)
				if err := t.SetBalance(addr, big.NewInt(i)); err != nil {
					t.Errorf("Harness.SetBalance failed: %v", err)
				} else if got, err := result(t, what, mayDoEither, func() (*big.Int, error) {
					return t.Backend.Balance(t.ctx, addr)
				}); err != nil || got == nil || got.Int64() != i {
					t.Errorf("%s returned %v and error %v, want %d", what, got, err, i)
				}
			}
		})
	}
	defer running.Wait()
	first.expect(all)
	middle.expect(all[151:])
}

// loadedPageFault checks a page that was read while blocks were appended. The page must be
// correct for some moment between the call and its return. before is the number of blocks
// that were appended before the call; all also has the blocks that were appended, or whose
// Append was running, when Blocks returned.
func loadedPageFault(all []chaingql.Block, before int, q chaingql.BlocksQuery, page []chaingql.Block) string {
	moment := before
	if len(page) > 0 {
		newest := slices.MaxFunc(page, ascending)
		for moment < len(all) && all[moment].Cursor <= newest.Cursor {
			moment++
		}
	}
	return pageFault(all[:moment], q, page)
}

package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

// A replaceLoad is a run of several calls of Replace while pages are read, blocks are looked up and Follows run.
type replaceLoad struct {
	*trial
	epocher chaingql.Epocher
	chains  [][]chaingql.Block // by generation
	moves   atomic.Int64       // increased before and after each call of Replace
	seen    chan struct{}      // receives a value when a generation was seen for the first time

	mu     sync.Mutex
	epochs map[string]int // by epoch: the generation of the blocks that calls returned while Epoch returned it
	known  map[int]string // by generation: the epoch
	fault  string         // the first fault
}

// chainsAreNotMixed replaces the chain three times under load.
func chainsAreNotMixed(t *trial) {
	t.existingEpoch()
	const generations, n = 4, 120
	l := &replaceLoad{
		trial: t, epocher: t.Backend.(chaingql.Epocher), seen: make(chan struct{}, generations),
		epochs: map[string]int{}, known: map[int]string{},
	}
	for number := range generations {
		l.chains = append(l.chains, t.generation(number, n))
	}
	ctx, cancel := context.WithCancel(t.ctx)
	var running sync.WaitGroup
	defer func() {
		cancel()
		const what = "a call whose context was canceled after the chain was replaced"
		t.promptly(t.Patience+Prompt, what, func() error { running.Wait(); return nil }, mustSucceed)
		if l.fault != "" {
			t.Errorf("%s", l.fault)
		}
	}()
	for i := range uint64(6) {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(7, i))
			for ctx.Err() == nil {
				switch {
				case i < 3:
					l.readPage(ctx, rng)
				case i < 4:
					l.lookUp(ctx, rng)
				default:
					l.follow(ctx)
				}
				time.Sleep(time.Duration(rng.IntN(3)) * time.Millisecond)
			}
		})
	}
	for number := range l.chains {
		if number > 0 {
			l.moves.Add(1)
			t.replace(number, n)
			l.moves.Add(1)
		}
		for from := 0; from < n; from += n / 4 {
			if err := t.Append(l.chains[number][from : from+n/4]); err != nil {
				t.Fatalf("Harness.Append failed after %d calls of Replace: %v", number, err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		if !l.await(number) {
			return
		}
	}
}

// await waits until a call has returned blocks of a generation. It returns false after a fault.
func (l *replaceLoad) await(number int) bool {
	over, stop := within(l.Patience)
	defer stop()
	for {
		l.mu.Lock()
		_, known := l.known[number]
		fault := l.fault
		l.mu.Unlock()
		switch {
		case fault != "":
			return false
		case known:
			return true
		}
		select {
		case <-l.seen:
		case <-l.ctx.Done(): // a call has not returned
			return false
		case <-over:
			l.Fatalf("no call returned blocks of the new chain, with the same Epoch before and after, "+
				"within %v of Harness.Replace", l.Patience)
		}
	}
}

func (l *replaceLoad) report(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == "" {
		l.fault = fmt.Sprintf(format, args...)
	}
}

// A running describes a call while the chain is replaced.
type running struct {
	what  string
	moves int64
	epoch string // the one that Epoch returned before the call
}

func (l *replaceLoad) begin(what string) running {
	return running{what, l.moves.Load(), l.epocher.Epoch()}
}

// failed checks the error of a call. Only ErrChainReplaced may end a call that did not begin or end during Replace.
func (l *replaceLoad) failed(ctx context.Context, c running, err error) {
	switch now := l.epocher.Epoch(); {
	case ctx.Err() != nil:
	case errors.Is(err, chaingql.ErrChainReplaced):
		if now == c.epoch {
			l.report("%s returned ErrChainReplaced, but Epoch returned %q before and after the call", c.what, now)
		}
	case errors.Is(err, chaingql.ErrCursorTooOld), errors.Is(err, chaingql.ErrBadCursor),
		c.moves%2 == 0 && c.moves == l.moves.Load():
		l.report("%s failed while the chain was replaced: %v; want ErrChainReplaced", c.what, err)
	}
}

// returned checks that blocks of a generation fit the epoch, if that has not changed since the call began.
func (l *replaceLoad) returned(c running, number int) {
	if l.epocher.Epoch() != c.epoch {
		return
	}
	l.mu.Lock()
	generation, isKnown := l.epochs[c.epoch]
	epoch, isSeen := l.known[number]
	if !isKnown && !isSeen {
		l.epochs[c.epoch], l.known[number] = number, c.epoch
		l.seen <- struct{}{}
	}
	l.mu.Unlock()
	switch {
	case isKnown && generation != number:
		l.report("%s returned blocks of another chain than before, but Epoch returned %q all the time: it must return "+
			"ErrChainReplaced", c.what, c.epoch)
	case isSeen && epoch != c.epoch:
		l.report("%s returned blocks of the chain with epoch %q, but Epoch returned %q before and after the call",
			c.what, epoch, c.epoch)
	}
}

// chainOf returns the number of the generation to which b belongs. If there is none, it reports a fault.
func (l *replaceLoad) chainOf(c running, b *chaingql.Block) (number int, ok bool) {
	if number = int(b.Hash[0]); number < len(l.chains) {
		return number, true
	}
	l.report("%s returned cursor %q with hash %v, which no block has", c.what, b.Cursor, b.Hash)
	return 0, false
}

const duringReplace = ", while the chain was replaced,"

func (l *replaceLoad) readPage(ctx context.Context, rng *rand.Rand) {
	q := chaingql.BlocksQuery{First: 2 + rng.IntN(40)}
	if rng.IntN(2) == 0 {
		q = randomQuery(rng, l.chains[0], []chaingql.Cursor{""})
	}
	c := l.begin(describe(q))
	page, err := result(l.trial, c.what+duringReplace, mayDoEither, func() ([]chaingql.Block, error) {
		return l.Backend.Blocks(ctx, q)
	})
	if err != nil {
		l.failed(ctx, c, err)
		return
	}
	for i := range page {
		number, ok := l.chainOf(c, &page[i])
		if !ok {
			return
		}
		if number != int(page[0].Hash[0]) {
			l.report("%s returned cursors %q and %q, which are of two chains", c.what, page[0].Cursor, page[i].Cursor)
			return
		}
	}
	if len(page) == 0 {
		return
	}
	number := int(page[0].Hash[0])
	l.returned(c, number)
	if fault := loadedPageFault(l.chains[number], 0, q, page); fault != "" {
		l.report("%s%s %s", c.what, duringReplace, fault)
	}
}

func (l *replaceLoad) lookUp(ctx context.Context, rng *rand.Rand) {
	for _, way := range l.allLookups() {
		want := pick(rng, pick(rng, l.chains))
		c := l.begin(way.call(&want))
		got, err := result(l.trial, c.what+duringReplace, mayDoEither, func() (chaingql.Block, error) {
			return way.find(ctx, &want)
		})
		switch {
		case errors.Is(err, chaingql.ErrBlockNotFound):
		case err != nil:
			l.failed(ctx, c, err)
		default:
			if number, ok := l.chainOf(c, &got); ok {
				l.returned(c, number)
			}
		}
	}
}

func (l *replaceLoad) follow(ctx context.Context) {
	c := l.begin(`Follow(after "")`)
	n, number, again := 0, 0, false
	for b, err := range l.Backend.Follow(ctx, "") {
		if err != nil {
			l.failed(ctx, c, err)
			return
		}
		if n == 0 {
			var ok bool
			if number, ok = l.chainOf(c, &b); !ok {
				return
			}
			l.returned(c, number)
		}
		if n > 0 && !again && b == l.chains[number][n-1] { // the newest stored block may be yielded twice
			again = true
			continue
		}
		if blocks := l.chains[number]; n == len(blocks) || b.Cursor != blocks[n].Cursor || b.Hash != blocks[n].Hash {
			l.report("%s yielded cursor %q with hash %v as block %d of a chain: it must yield each block of one chain",
				c.what, b.Cursor, b.Hash, n+1)
			return
		}
		n++
	}
}

package chaingql

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// flights let identical reads that are under way at the same time share one
// call of the Backend.
type flights struct {
	patience time.Duration // how long one can be joined; zero is for as long as it takes
	mu       sync.Mutex
	by       map[reading]*flight
}

// A reading tells reads apart. What was seen is part of it: a read that began
// before its asker was shown a block might answer without that block.
type reading struct {
	q         BlocksQuery // without its pointers
	workchain int32
	shard     uint64
	given     [2]bool // workchain, shard
	seen      string
}

func readingOf(q BlocksQuery, seen string) reading {
	r := reading{q: q, seen: seen}
	if q.Workchain != nil {
		r.workchain, r.given[0] = *q.Workchain, true
	}
	if q.Shard != nil {
		r.shard, r.given[1] = *q.Shard, true
	}
	r.q.Workchain, r.q.Shard = nil, nil
	return r
}

// A flight is one call under way. Its context ends when everybody has left.
type flight struct {
	ctx    context.Context
	cancel context.CancelFunc
	begun  time.Time
	aboard int // flights.mu guards it
	landed chan struct{}
	blocks []Block // shared by all aboard: only read
	err    error
}

// read makes the call, on the first asker's goroutine, or waits for the one
// that is under way. A caller who leaves ends its own wait, except that the
// first stays until the call is back.
func (f *flights) read(ctx context.Context, what reading, call func(context.Context) ([]Block, error)) ([]Block, error) {
	f.mu.Lock()
	fl := f.by[what]
	// A call that takes long may be lost, and must not take everybody with it.
	first := fl == nil || f.patience > 0 && time.Since(fl.begun) >= f.patience
	if first {
		fl = &flight{begun: time.Now(), landed: make(chan struct{})}
		fl.ctx, fl.cancel = context.WithCancel(context.Background())
		if f.by == nil {
			f.by = make(map[reading]*flight)
		}
		f.by[what] = fl
	}
	fl.aboard++
	f.mu.Unlock()

	if first {
		stop := context.AfterFunc(ctx, func() { f.leave(what, fl) })
		f.fly(what, fl, call)
		if !stop() {
			return nil, ctx.Err()
		}
		f.leave(what, fl)
		return fl.blocks, fl.err
	}
	defer f.leave(what, fl)
	select {
	case <-fl.landed:
		return fl.blocks, fl.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *flights) fly(what reading, fl *flight, call func(context.Context) ([]Block, error)) {
	defer func() {
		if p := recover(); p != nil {
			fl.err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		f.mu.Lock()
		f.forget(what, fl)
		f.mu.Unlock()
		close(fl.landed)
	}()
	fl.err = errors.New("chaingql: Backend.Blocks ended its goroutine")
	fl.blocks, fl.err = call(fl.ctx)
}

// leave ends the call when nobody waits for it any more; whoever asks then must
// not board it.
func (f *flights) leave(what reading, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl.aboard--; fl.aboard == 0 {
		f.forget(what, fl)
		fl.cancel()
	}
}

func (f *flights) forget(what reading, fl *flight) {
	if f.by[what] == fl {
		delete(f.by, what)
	}
}

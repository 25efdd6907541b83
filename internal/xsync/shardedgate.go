package xsync

import (
	"cmp"
	"context"
	"runtime"
)

// A ShardedGate is a gate without a limit. The first members on each processor enter a shard of their own, so that they
// do not wait for a cache line that another processor changes (BenchmarkTwoCallers in the root package). All others
// enter a common Gate. Its methods are safe for concurrent use.
type ShardedGate struct {
	common Gate
	shards []paddedGate
}

type paddedGate struct {
	Gate
	_ [128]byte // the next Gate must not be in the same or the next cache line
}

// NewShardedGate returns a ShardedGate whose shards admit limit members each. If limit is 0, it has no shards.
func NewShardedGate(limit int) *ShardedGate {
	g := new(ShardedGate)
	g.common.init(0)
	if limit > 0 {
		g.shards = make([]paddedGate, runtime.GOMAXPROCS(0))
		for i := range g.shards {
			g.shards[i].init(limit)
		}
	}
	return g
}

// Enter adds a member and returns the Gate that it must leave. first reports whether the Gate is a shard: n selects it,
// and should be the same for the calls on one processor. If g is closed, Enter returns nil.
func (g *ShardedGate) Enter(n uint32) (entered *Gate, first bool) {
	if len(g.shards) > 0 {
		own := &g.shards[n%uint32(len(g.shards))].Gate
		if ok, isClosed := own.Enter(); ok {
			return own, true
		} else if isClosed {
			return nil, false
		}
	}
	if ok, _ := g.common.Enter(); !ok {
		return nil, false
	}
	return &g.common, false
}

// Closed reports whether Close was called.
func (g *ShardedGate) Closed() bool { return g.common.Closed() }

// Close admits no further member, and waits until all have left or ctx is done. Then it returns the error of ctx. Close
// may be called again.
func (g *ShardedGate) Close(ctx context.Context) error {
	for i := range g.shards {
		g.shards[i].Shut()
	}
	err := g.common.Close(ctx)
	for i := range g.shards {
		err = cmp.Or(g.shards[i].Close(ctx), err)
	}
	return err
}

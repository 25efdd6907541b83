package main

import (
	"context"
	"time"

	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// rounds is the number of masterchain blocks in a generated chain: enough for five minutes at the
// default pace.
const rounds = 300

// A replay serves a chain from a lite server of its own and adds the blocks of the chain over
// time.
type replay struct {
	chain  *liteservertest.Chain
	server *liteservertest.Server
}

// newReplay starts the lite server. If from is "generated", the chain is generated. Otherwise from is
// a directory of archive packs.
func newReplay(from string) (r replay, err error) {
	if from == "generated" {
		r.chain = liteservertest.Generate(rounds)
	} else if r.chain, err = liteservertest.Recorded(from); err != nil {
		return r, err
	}
	if r.server, err = liteservertest.Start(r.chain); err != nil {
		return r, err
	}
	r.server.Advance(min(r.chain.First()+20, r.chain.Last()))
	return r, nil
}

// run adds one masterchain block at each interval of length pace until the chain ends or ctx is
// done.
func (r replay) run(ctx context.Context, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for seqNo := r.chain.First() + 21; seqNo <= r.chain.Last(); seqNo++ {
		select {
		case <-tick.C:
			r.server.Advance(seqNo)
		case <-ctx.Done():
			return
		}
	}
}

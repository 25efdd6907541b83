package main

import (
	"context"
	"time"

	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// rounds is the length of a generated chain: ten minutes at the default pace.
const rounds = 600

// A replay replays a chain.
type replay struct {
	chain  *liteservertest.Chain
	server *liteservertest.Server
}

func newReplay(from string) (r replay, err error) {
	if from == "made" {
		r.chain = liteservertest.Made(rounds)
	} else if r.chain, err = liteservertest.Recorded(from); err != nil {
		return r, err
	}
	if r.server, err = liteservertest.Start(r.chain); err != nil {
		return r, err
	}
	r.server.Advance(min(r.chain.First()+20, r.chain.Last()))
	return r, nil
}

// run adds one masterchain block per pace until the end of the chain.
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

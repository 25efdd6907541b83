package natschain_test

import (
	"bytes"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// withRareBlocks returns blocks of three workchains: every tenth block is of the masterchain, and every hundredth of
// workchain 5. Each block is one second later than the previous one.
func withRareBlocks(n int) []chaingql.Block {
	all := uneven(n)
	for i := range all {
		b := &all[i]
		b.Workchain, b.Shard, b.Time = 0, 1<<63, time.Unix(1_700_000_000+int64(i), 0).UTC()
		switch {
		case i%100 == 7:
			b.Workchain = 5
		case i%10 == 0:
			b.Workchain = -1
		}
	}
	return all
}

// A holder holds back a request of a Backend while the stream changes.
type holder struct {
	part    []byte // part of the request
	skip    atomic.Int64
	meet    func()
	b       *natschain.Backend
	holding atomic.Bool
}

// newHolder opens a Backend. The holder calls meet before the Backend sends the first request that contains part after
// the next call of hold, or a later one.
func newHolder(t *testing.T, s *broker, part string) *holder {
	h := &holder{part: []byte(part)}
	dial := holdingDialer(func(data []byte) {
		if h.holding.Load() && bytes.Contains(data, h.part) && h.skip.Add(-1) < 0 {
			h.holding.Store(false)
			h.meet()
		}
	})
	h.b = open(t, s.ClientURL(), &natschain.Options{Create: &natschain.Storage{},
		Connect: []nats.Option{nats.SetCustomDialer(dial)}})
	return h
}

// hold makes the holder call meet before the request that follows skip requests.
func (h *holder) hold(skip int, meet func()) {
	h.skip.Store(int64(skip))
	h.meet = meet
	h.holding.Store(true)
}

// TestFirstPageOfRareWorkchainHasNoHoleIfBlocksArePrunedDuringRead prunes half of the chain after a page has received
// its first blocks. The page must begin after the pruned blocks, because blocks in its middle are gone.
func TestFirstPageOfRareWorkchainHasNoHoleIfBlocksArePrunedDuringRead(t *testing.T) {
	t.Parallel()
	all := withRareBlocks(8_000)
	s, _, w := indexedChain(t, all)
	h, workchain := newHolder(t, s, "GET.chain_index"), int32(5)
	h.hold(0, func() {
		if err := w.Prune(t.Context(), all[4000].Cursor); err != nil {
			t.Error(err)
		}
	})
	rare := slices.DeleteFunc(slices.Clone(all[4000:]), func(b chaingql.Block) bool { return b.Workchain != workchain })
	expectPage(t, h.b, chaingql.BlocksQuery{Workchain: &workchain, First: 30}, rare[:30])
	if h.holding.Load() {
		t.Error("the page did not use the index")
	}
}

// TestMasterBlockByTimeIsFoundDuringPruning prunes blocks at each step of a lookup, among them the block that the
// lookup would have found. As later blocks exist, one of them must be found.
func TestMasterBlockByTimeIsFoundDuringPruning(t *testing.T) {
	t.Parallel()
	all := withRareBlocks(8_000)
	s, _, w := indexedChain(t, all)
	h := newHolder(t, s, "MSG.GET.chain_blocks")
	for step := 1; ; step++ {
		before, after := all[100*(step-1)], all[100*step]
		h.hold(step-1, func() {
			if err := w.Prune(t.Context(), after.Cursor); err != nil {
				t.Error(err)
			}
		})
		found, err := h.b.MasterBlockByTime(t.Context(), all[0].Time)
		pruned := !h.holding.Load()
		if err != nil || found != before && (found != after || !pruned) {
			t.Errorf("blocks were pruned before request %d: got %q and error %v, want %q or %q", step, found.Cursor,
				err, before.Cursor, after.Cursor)
		}
		if !pruned {
			break
		}
	}
}

// TestCursorBelowTheFirstMessageIsValid reads after cursors before the first block of a stream from which nothing was
// removed. The stream may begin in the middle of a chain, for example if it is a copy.
func TestCursorBelowTheFirstMessageIsValid(t *testing.T) {
	all, base := numbered(101, 140), int32(0)
	for _, prev := range []chaingql.Cursor{"", chaingql.SeqCursor(99)} {
		s := newBroker(t)
		b := open(t, s.ClientURL(), nil)
		publishRun(t, s.ClientURL(), prev, all)
		for _, after := range []chaingql.Cursor{"00", chaingql.SeqCursor(99), chaingql.SeqCursor(100)} {
			for _, q := range []chaingql.BlocksQuery{
				{First: 5, After: after}, {Last: 100, After: after}, {First: 5, After: after, Workchain: &base},
				{Last: 5, Before: after}, {First: 5, After: after, Before: all[3].Cursor},
			} {
				expectPage(t, b, q, chaingql.PageOf(all, q))
			}
			follow(t, b, after).expect(all)
		}
	}
}

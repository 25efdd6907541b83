package tonlite_test

import (
	"context"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// TestNewestBlockNeedsNoQueryWhileFollowRuns reads pages while the consumer of a Follow handles a
// block. The Backend must know the newest block without querying a server, even if the chain
// grows meanwhile.
func TestNewestBlockNeedsNoQueryWhileFollowRuns(t *testing.T) {
	s := start(t, generate(30), nil)
	s.Advance(20)
	b := open(t, s.Config(), nil)
	followed := make(chan chaingql.Block)
	go func() {
		for block, err := range b.Follow(t.Context(), cursor(19)) {
			if err != nil {
				return
			}
			followed <- block
		}
	}()
	<-followed // Follow yields the next block now
	s.Asked()
	for n := uint32(21); n <= 25; n++ {
		s.Advance(n)
		for newest := chaingql.Cursor(""); newest != cursor(n); time.Sleep(10 * time.Millisecond) {
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
			if err != nil || len(page) != 1 {
				t.Fatalf("got a page of %d blocks and error %v", len(page), err)
			}
			newest = page[0].Cursor
		}
	}
	if n := s.Asked()["getMasterchainInfo"]; n > 0 {
		t.Errorf("got %d queries for the newest block, want 0", n)
	}
	for last := cursor(20); last != cursor(25); {
		block := <-followed
		if block.Workchain == -1 {
			last = block.Cursor
		}
	}
}

// TestFollowProvesNewestBlockAfterDelay adds 19 blocks while the Backend waits for the proof of the block
// before them. Follow must yield them all, but needs few proofs: one for the newest, and those with which it
// reads several blocks at once.
func TestFollowProvesNewestBlockAfterDelay(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(40)
		s := m.start(chain)
		s.Advance(20)
		b := m.open(s.Config(), nil)
		s.DelayData(150 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s.Asked()
		proofs, grown := 0, make(chan struct{})
		go func() {
			defer close(grown)
			s.Advance(21)
			for proofs == 0 && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
				proofs += s.Asked()["getBlockProof"]
			}
			s.Advance(40)
		}()
		want := uint32(21)
		for block, err := range b.Follow(ctx, cursor(20)) {
			if err != nil {
				t.Fatal(err)
			}
			if block.Workchain != -1 {
				continue
			}
			if block.SeqNo != want {
				t.Fatalf("got block %d, want %d", block.SeqNo, want)
			}
			if want++; want > 40 {
				break
			}
		}
		<-grown
		if proofs += s.Asked()["getBlockProof"]; proofs > 8 {
			t.Errorf("Follow needed %d proofs for 20 blocks, want at most 8", proofs)
		}
	})
}

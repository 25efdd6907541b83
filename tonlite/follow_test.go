package tonlite_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestNewestBlockNeedsNoQueryWhileFollowRuns reads pages while the consumer of a Follow handles a
// block. The Backend must know the newest block without querying a server, even if the chain
// grows meanwhile.
func TestNewestBlockNeedsNoQueryWhileFollowRuns(t *testing.T) {
	s := start(t, liteservertest.Generate(30), nil)
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

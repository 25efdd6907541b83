package tonlite_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// answers checks that the Backend returns the right newest block and the right balances. head is
// the seq_no of the newest masterchain block in chain.
func answers(t *testing.T, b *tonlite.Backend, chain *liteservertest.Chain, head uint32) {
	t.Helper()
	masters := int32(-1)
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1, Workchain: &masters})
	if err != nil || len(page) != 1 || page[0].SeqNo != head {
		t.Fatalf("newest block: got %v and error %v, want seq_no %d", page, err, head)
	}
	for addr, want := range chain.Balances(head) {
		if nano, err := b.Balance(t.Context(), addr); err != nil || nano.Cmp(want) != 0 {
			t.Fatalf("balance of %v: got %v and error %v, want %v", addr, nano, err, want)
		}
	}
}

// TestInventedHeadIsRejected lets one of two servers announce block 4,000,000,000, which does not
// exist, as the newest one. All calls must work before, during and after that.
func TestInventedHeadIsRejected(t *testing.T) {
	chain := generate(40)
	for name, opts := range map[string]*tonlite.Options{
		"proven": {Timeout: time.Second}, "unproven": {Timeout: time.Second, Unproven: true},
	} {
		t.Run(name, func(t *testing.T) {
			liar, honest := start(t, chain, nil), start(t, chain, nil)
			liar.Advance(20)
			honest.Advance(20)
			b := open(t, liar.Config(honest), opts)
			answers(t, b, chain, 20)
			liar.SetLie(liteservertest.FarHead)
			answers(t, b, chain, 20)
			honest.Advance(30)
			liar.Advance(30)
			answers(t, b, chain, 30)
			answers(t, open(t, liar.Config(honest), opts), chain, 30)
			liar.SetLie(liteservertest.Truth)
			answers(t, b, chain, 30)
		})
	}
}

// TestUnprovenOptionNeedsNoInitBlock uses a configuration without an init_block.
func TestUnprovenOptionNeedsNoInitBlock(t *testing.T) {
	chain := generate(20)
	s := start(t, chain, nil)
	config := changed(t, s.Config(), map[string]any{}, "validator", "init_block")
	answers(t, open(t, config, &tonlite.Options{Unproven: true}), chain, 20)
}

// TestForgedHeadIsDropped lets the only server announce a forged but readable block and later
// deny that the block exists. The Backend must drop the block and continue with the right ones.
func TestForgedHeadIsDropped(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	s.Advance(20)
	b := open(t, s.Config(), &tonlite.Options{Timeout: time.Second, Unproven: true})
	s.Advance(21)
	s.SetLie(liteservertest.FalseHead)
	masters := int32(-1)
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1, Workchain: &masters})
	newest := chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{Last: 1, Workchain: &masters})
	if err != nil || len(page) != 1 || page[0] == newest[0] {
		t.Fatalf("the forged block was not accepted: got %v and error %v", page, err)
	}
	s.SetLie(liteservertest.Truth)
	answers(t, b, chain, 21)
	s.Advance(25)
	for block, err := range b.Follow(t.Context(), page[0].Cursor) {
		if err != nil {
			t.Fatal(err)
		}
		if block.Workchain == masters && block.SeqNo == 25 {
			break
		}
	}
	answers(t, b, chain, 25)
}

// TestFollowEndsWhenItsNewestBlockIsDropped lets a Follow wait for the block after block 22.
// Meanwhile the only server loses block 22.
func TestFollowEndsWhenItsNewestBlockIsDropped(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	s.Advance(22)
	b := open(t, s.Config(), &tonlite.Options{Timeout: 200 * time.Millisecond, Unproven: true})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	time.AfterFunc(100*time.Millisecond, func() { s.Advance(20) })
	for _, err := range b.Follow(ctx, chaingql.ChainOrder(-1, 1<<63, 22, 22)) {
		if err == nil || ctx.Err() != nil {
			t.Errorf("Follow: got error %v, want one before the deadline", err)
		}
	}
	answers(t, b, chain, 20)
}

// TestUnprovenHeadCatchesUpAfterLongPause adds more than maxLinks blocks while no call is made.
func TestUnprovenHeadCatchesUpAfterLongPause(t *testing.T) {
	chain := generate(1001)
	s := start(t, chain, nil)
	s.Advance(10)
	b := open(t, s.Config(), &unproven)
	s.Advance(700)
	answers(t, b, chain, 700)
}

func TestOpenLogsWarningIfUnproven(t *testing.T) {
	s := start(t, generate(3), nil)
	for _, row := range []struct {
		unproven bool
		lines    int
	}{{false, 0}, {true, 1}, {true, 1}} {
		var log bytes.Buffer
		open(t, s.Config(), &tonlite.Options{Unproven: row.unproven, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if got := strings.Count(log.String(), "level=WARN"); got != row.lines {
			t.Errorf("Unproven %v: got log %q, want %d warnings", row.unproven, log.String(), row.lines)
		}
	}
}

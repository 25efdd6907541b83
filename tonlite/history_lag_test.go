package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestServersThatLagKeepTheirHistory reads blocks while a server that has only the newest block is two blocks ahead of
// the servers that have the history. Until these have the newest block, a call may fail with ErrUnavailable. But no
// result may deny their history, and the servers must stay in use.
func TestServersThatLagKeepTheirHistory(t *testing.T) {
	for _, distance := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
		for _, warm := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v away, warm %v", distance, warm), func(t *testing.T) {
				inBubble(t, func(t *testing.T, m *memoryNetwork) { readWhileServersLag(t, m, distance, warm) })
			})
		}
	}
}

func readWhileServersLag(t *testing.T, m *memoryNetwork, distance time.Duration, warm bool) {
	chain := generate(400)
	newest, one, other := m.start(chain), m.start(chain), m.start(chain)
	for _, s := range []*liteservertest.Server{newest, one, other} {
		s.Advance(300)
		s.Forget(20)
	}
	newest.Forget(300)
	one.Delay(distance)
	other.Delay(distance)
	all := chain.Blocks()
	all = all[:1+slices.IndexFunc(all, func(block chaingql.Block) bool { return block.Cursor == cursor(302) })]
	var log testkit.Buffer
	opts := &tonlite.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Cache: 8}
	b := m.open(newest.Config(one, other), opts)
	b.Prefer(0)
	read := func(q chaingql.BlocksQuery, mayFail bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // Limits.BackendTimeout
		defer cancel()
		page, err := b.Blocks(ctx, q)
		if err != nil {
			if !mayFail || !errors.Is(err, chaingql.ErrUnavailable) || errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("%+v: got error %v", q, err)
			}
			return
		}
		if q.After == "" && q.First > 0 && len(page) > 0 { // the start is not guaranteed
			q.After = before(all, page[0].Cursor)
		}
		if !slices.Equal(page, chaingql.PageOf(all, q)) {
			t.Errorf("%+v: got %d blocks, want %d", q, len(page), len(chaingql.PageOf(all, q)))
		}
	}
	if warm {
		read(chaingql.BlocksQuery{First: 10}, true) // may have no time for servers that are 200 ms away
	}
	newest.Advance(302)
	newest.Forget(302)
	queries := []chaingql.BlocksQuery{
		{First: 10}, {First: 50, After: cursor(297)}, {Last: 50}, {Last: 1}, {First: 10},
		{Last: 50, After: cursor(200)}, {Last: 5, Before: cursor(200)}, {First: 5, After: cursor(200)},
	}
	caughtUp := time.Now().Add(4 * time.Second)
	time.AfterFunc(4*time.Second, func() { one.Advance(302); other.Advance(302) })
	for time.Now().Before(caughtUp) {
		for _, q := range queries {
			read(q, true)
		}
		time.Sleep(100 * time.Millisecond)
	}
	for block, err := range b.Follow(t.Context(), cursor(296)) {
		if err != nil {
			t.Errorf("Follow: got error %v", err)
		}
		if block.Cursor == cursor(302) {
			break
		}
	}
	time.Sleep(10 * time.Second)
	for range 2 {
		for _, q := range queries {
			read(q, false)
		}
	}
	if text := log.String(); text != "" {
		t.Errorf("got log %s, want no failures", text)
	}
}

package tonlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
)

// TestHistoryOfLaggingServerIsRead uses two servers that have deleted old blocks, and one that has all blocks and lags
// behind the others, or announces each block with them but has its shard blocks later. There is a block per second.
func TestHistoryOfLaggingServerIsRead(t *testing.T) {
	for _, row := range []struct {
		lag       uint32
		announces bool
		pause     time.Duration // between two pages
	}{{8, false, time.Second}, {60, false, 10 * time.Second}, {20, true, time.Second}, {60, true, 10 * time.Second}} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *memoryNetwork) {
				readLaggingHistory(t, m, row.lag, row.announces, row.pause, 3*time.Minute)
			})
		})
	}
}

// TestServerIsNotBlamedForLag uses a server that announces each block with the others, but is so far behind that it
// does not even wait.
func TestServerIsNotBlamedForLag(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		readLaggingHistory(t, m, 110, true, 5*time.Second, 50*time.Second)
	})
}

// readLaggingHistory reads old pages and blocks for the given time. They may be unavailable for the first 90 seconds.
func readLaggingHistory(
	t *testing.T, m *memoryNetwork, lag uint32, announces bool, pause, duration time.Duration,
) {
	chain := generate(1001)
	archive, pruned, other := m.start(chain), m.start(chain), m.start(chain)
	grow := func(to uint32) {
		pruned.Advance(to)
		other.Advance(to)
		if archive.Advance(to - lag); announces {
			archive.LagShards(to - lag)
			archive.Advance(to)
		}
	}
	pruned.Forget(700)
	other.Forget(700)
	grow(800)
	var log testkit.Buffer
	b := m.open(pruned.Config(archive, other),
		&tonlite.Options{Cache: 32, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	b.Prefer(0)
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		for range b.Follow(ctx, cursor(799)) {
		}
	})
	running.Go(func() {
		for h := uint32(801); h < 1001 && ctx.Err() == nil; h++ {
			time.Sleep(time.Second)
			grow(h)
		}
	})
	time.Sleep(5 * time.Second)
	begin := time.Now()
	check := func(err error) {
		after := time.Since(begin)
		if err != nil && (!errors.Is(err, chaingql.ErrUnavailable) || after > 90*time.Second) {
			t.Errorf("after %v: got error %v", after, err)
		}
	}
	for i := uint32(0); time.Since(begin) < duration && !t.Failed(); i++ {
		own, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := b.Blocks(own, chaingql.BlocksQuery{First: 5, After: cursor(300 + i%100)})
		check(err)
		_, err = b.BlockBySeqNo(own, -1, 1<<63, 400+i%100)
		check(err)
		cancel()
		time.Sleep(pause)
	}
	if text := log.String(); text != "" {
		t.Errorf("an honest server is blamed: %s", text)
	}
}

// TestFollowWaitsForShardBlocksOfTheOthers lets a server announce each block two seconds before the other one, and
// withhold its shard blocks.
func TestFollowWaitsForShardBlocksOfTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		ahead, other, b := m.startTwo(generate(40))
		var growing sync.WaitGroup
		defer growing.Wait()
		growing.Go(func() {
			for seqNo := uint32(21); seqNo <= 40; seqNo++ {
				ahead.ForgetShards(seqNo + 1)
				ahead.Advance(seqNo)
				time.AfterFunc(2*time.Second, func() { other.Advance(seqNo) })
				time.Sleep(2500 * time.Millisecond)
			}
		})
		for block, err := range b.Follow(t.Context(), cursor(20)) {
			if err != nil {
				t.Errorf("Follow ends with error %v", err)
			}
			if err != nil || block.Workchain == -1 && block.SeqNo == 40 {
				break
			}
		}
	})
}

// TestFollowDoesNotWaitForServerThatWithholdsTheHead lets a server announce and prove each block half a second
// before the other one, and deny after seconds that it has the block.
func TestFollowDoesNotWaitForServerThatWithholdsTheHead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		ahead, other, b := m.startTwo(generate(40))
		ahead.DelayMissing(4900 * time.Millisecond)
		begin := time.Now()
		for block, err := range b.Follow(t.Context(), cursor(19)) {
			if err != nil {
				t.Fatalf("Follow ends with error %v", err)
			}
			if block.Workchain != -1 {
				continue
			}
			if took := time.Since(begin); took > time.Second && block.SeqNo > 20 {
				t.Errorf("block %d took %v", block.SeqNo, took)
			}
			if block.SeqNo == 40 {
				break
			}
			time.Sleep(3 * time.Second)
			b.Prefer(0)
			ahead.SetLie(liteservertest.Withheld)
			begin = time.Now()
			ahead.Advance(block.SeqNo + 1)
			time.AfterFunc(500*time.Millisecond, func() {
				other.Advance(block.SeqNo + 1)
				ahead.SetLie(liteservertest.Truth)
			})
		}
	})
}

// TestBalanceIsReadAlthoughManyServersLag lets a server announce each block two blocks before six others, and reject
// queries for accounts.
func TestBalanceIsReadAlthoughManyServersLag(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memoryNetwork) {
		chain := generate(80)
		ahead := m.start(chain)
		var others []*liteservertest.Server
		for range 6 {
			others = append(others, m.start(chain))
		}
		grow := func(seqNo uint32) {
			ahead.Advance(seqNo)
			for _, s := range others {
				s.Advance(seqNo - 2)
			}
		}
		grow(22)
		ahead.Reject("getAccountState")
		b := m.open(ahead.Config(others...), nil)
		b.Prefer(0)
		var running sync.WaitGroup
		defer running.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		running.Go(func() {
			for seqNo := uint32(23); seqNo <= 80 && ctx.Err() == nil; seqNo++ {
				time.Sleep(5 * time.Second)
				grow(seqNo)
			}
		})
		running.Go(func() {
			for ctx.Err() == nil {
				for range b.Follow(ctx, cursor(21)) { // a Handler calls Follow again, too
				}
				time.Sleep(time.Second)
			}
		})
		time.Sleep(21 * time.Second)
		for range 20 {
			own, cancel := context.WithTimeout(ctx, 5*time.Second) // Limits.BackendTimeout
			_, err := b.Balance(own, chaingql.Address{Workchain: -1})
			if cancel(); !errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("got error %v, want that the account does not exist", err)
			}
			time.Sleep(1300 * time.Millisecond)
		}
	})
}

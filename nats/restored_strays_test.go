package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestHostReadsBlocksWithNumbersOfStrayMessagesThatWereLost lets hosts find out that the newest messages are strays.
// Then the stream is restored from a backup without them, and blocks receive their sequence numbers. The first read of
// each host must find these blocks.
func TestHostReadsBlocksWithNumbersOfStrayMessagesThatWereLost(t *testing.T) {
	const old, strays = 300, 50
	all := numbered(1001, 1600)
	all[old+8].Hash[9] = 1
	page := func(b *natschain.Backend, all []chaingql.Block, q chaingql.BlocksQuery) error {
		got, err := b.Blocks(context.Background(), q)
		if want := chaingql.PageOf(all, q); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("page %s: got %v and error %v, want %v", named(q), cursorsOf(got), err, cursorsOf(want))
		}
		return nil
	}
	reads := []func(b *natschain.Backend, all []chaingql.Block) error{
		func(b *natschain.Backend, all []chaingql.Block) error {
			return page(b, all, chaingql.BlocksQuery{First: 100, After: all[old-1].Cursor})
		},
		func(b *natschain.Backend, all []chaingql.Block) error {
			return page(b, all, chaingql.BlocksQuery{First: 5, After: all[old-1].Cursor})
		},
		func(b *natschain.Backend, all []chaingql.Block) error {
			return page(b, all, chaingql.BlocksQuery{Last: 1, Workchain: &all[old+8].Workchain})
		},
		func(b *natschain.Backend, all []chaingql.Block) error {
			x := all[old+8]
			found, err := b.BlockBySeqNo(context.Background(), x.Workchain, x.Shard, x.SeqNo)
			if err != nil || found != x {
				return fmt.Errorf("BlockBySeqNo: got %q and error %v, want %q", found.Cursor, err, x.Cursor)
			}
			return nil
		},
		func(b *natschain.Backend, all []chaingql.Block) error {
			found, err := b.BlockByHash(context.Background(), all[old+8].Hash)
			if err != nil || found != all[old+8] {
				return fmt.Errorf("BlockByHash: got %q and error %v, want %q", found.Cursor, err, all[old+8].Cursor)
			}
			return nil
		},
		func(b *natschain.Backend, all []chaingql.Block) error {
			if b.RemoveStray(context.Background(), old+5) == nil {
				return errors.New("RemoveStray removed a block")
			}
			return nil
		},
	}
	for _, row := range []struct {
		added  int // blocks that are appended after the restore
		follow bool
	}{{added: 10}, {added: strays + 20}, {added: 4 * strays, follow: true}} {
		t.Run(fmt.Sprintf("%d blocks, with Follow: %t", row.added, row.follow), func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), t.Context()
			write := func(blocks []chaingql.Block) {
				t.Helper()
				if err := writer(t, open(t, s.ClientURL(), (&logbook{}).options())).Append(ctx, blocks...); err != nil {
					t.Fatal(err)
				}
			}
			write(all[:old])
			backUp, restore := s.backups()
			backUp()
			js := raw(t, s.ClientURL())
			for range strays {
				if _, err := js.Publish(ctx, subjectOf(&all[0]), []byte("junk")); err != nil {
					t.Fatal(err)
				}
			}
			hosts := make([]*natschain.Backend, len(reads))
			for i := range hosts {
				opts := (&logbook{}).options()
				opts.Timeout = patience
				hosts[i] = open(t, s.ClientURL(), opts)
				if err := page(hosts[i], all[:old], chaingql.BlocksQuery{Last: 1}); err != nil {
					t.Fatal(err)
				}
			}
			restore()
			added := all[old : old+row.added]
			var live sync.WaitGroup
			if row.follow {
				for _, b := range hosts {
					live.Go(func() {
						if err := receive(ctx, b, all[old-1].Cursor, added); err != nil {
							t.Error(err)
						}
					})
				}
			}
			write(added)
			live.Wait()
			for i, read := range reads {
				if err := read(hosts[i], all[:old+row.added]); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// receive calls Follow until it has received the blocks, again if the server is not available yet.
func receive(ctx context.Context, b *natschain.Backend, after chaingql.Cursor, blocks []chaingql.Block) error {
	for {
		for got, err := range b.Follow(ctx, after) {
			switch {
			case errors.Is(err, chaingql.ErrUnavailable):
			case err != nil || got != blocks[0]:
				return fmt.Errorf("Follow: got %q and error %v, want %q", got.Cursor, err, blocks[0].Cursor)
			default:
				if after, blocks = got.Cursor, blocks[1:]; len(blocks) == 0 {
					return nil
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(10 * time.Millisecond) // until the client has noticed that the server was restarted
	}
}

// TestRunningHostNoticesShiftedBlocks restores the backup of a chain without some strays while a host is running. The
// same blocks are appended again, with as many strays at another place, so that the stream ends with an equal message,
// or with one more. The host must find all blocks, and must not remove a block that has the number of a former stray.
func TestRunningHostNoticesShiftedBlocks(t *testing.T) {
	t.Parallel()
	pages := func(ctx context.Context, b *natschain.Backend) error {
		_, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 50})
		return err
	}
	live := func(ctx context.Context, b *natschain.Backend) error {
		for block, err := range b.Follow(ctx, "") {
			if err != nil || block.SeqNo == 60 {
				return err
			}
		}
		return nil
	}
	for name, row := range map[string]struct {
		read   func(context.Context, *natschain.Backend) error
		blocks uint64
	}{"pages": {pages, 60}, "Follow": {live, 60}, "pages, one more block": {pages, 61}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx, all := newBroker(t), t.Context(), numbered(1, row.blocks)
			for i := range all {
				all[i].Hash[0] = byte(i)
			}
			publishStrays := func() {
				for range 3 {
					s.publishStray(t, &all[0])
				}
			}
			s.appendNew(t, all[:30])
			backUp, restore := s.backups()
			backUp()
			s.appendNew(t, all[30:40])
			publishStrays()
			host := open(t, s.ClientURL(), (&logbook{}).options())
			s.appendNew(t, all[40:60])
			if err := row.read(ctx, host); err != nil {
				t.Fatal(err)
			}
			expectByHash(t, host, all[:60], true)
			restore()
			s.appendNew(t, all[30:50])
			publishStrays()
			s.appendNew(t, all[50:])
			if row.blocks > 60 { // the host first reads the block that it does not know yet
				expectPages(t, host, all, []chaingql.BlocksQuery{{Last: 1}})
			}
			if err := host.RemoveStray(ctx, 41); err == nil {
				t.Error("RemoveStray of a block: got no error")
			}
			expectPages(t, host, all, []chaingql.BlocksQuery{{First: 30, After: all[39].Cursor}})
			expectByHash(t, host, all, true)
		})
	}
}

package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
)

// backups returns two functions: backUp copies the block stream, and restore replaces the block stream
// with the copy. Both restart the server.
func (b *broker) backups() (backUp, restore func()) {
	stream := filepath.Join(b.opts.StoreDir, "jetstream", "$G", "streams", "chain_blocks")
	backup := filepath.Join(b.t.TempDir(), "backup")
	restart := func(from, to string) {
		b.t.Helper()
		b.stop()
		if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
			b.t.Fatal(err)
		}
		b.start()
	}
	return func() { restart(stream, backup) }, func() { restart(backup, stream) }
}

// appendAndBackUp appends blocks and makes a backup of the stream when it has each of the given numbers of them, in
// ascending order. It returns functions that restore these backups.
func (b *broker) appendAndBackUp(w *natschain.Writer, blocks []chaingql.Block, sizes ...int) map[int]func() {
	b.t.Helper()
	restore, stored := map[int]func(){}, 0
	for _, size := range append(sizes, len(blocks)) {
		if err := w.Append(b.t.Context(), blocks[stored:size]...); err != nil {
			b.t.Fatal(err)
		}
		stored = size
		if size < len(blocks) {
			var backUp func()
			backUp, restore[size] = b.backups()
			backUp()
		}
	}
	return restore
}

// TestIndexOfLostBlocksIsIgnored restores the block stream from a backup, but not the index. Then the
// chain continues with other blocks than before. Pages must not contain blocks that were lost.
func TestIndexOfLostBlocksIsIgnored(t *testing.T) {
	s := newBroker(t)
	opts := natschain.Options{Create: &natschain.Storage{}}
	write := func(blocks []chaingql.Block) {
		t.Helper()
		b := open(t, s.ClientURL(), &opts)
		defer b.Close()
		if err := writer(t, b).Append(context.Background(), blocks...); err != nil {
			t.Fatal(err)
		}
	}
	backUp, restore := s.backups()
	lost, all := uneven(3000), uneven(3000)
	for i := 1000; i < len(all); i++ {
		all[i].Hash[1] = 1
		if all[i].Workchain == 9 || i%50 == 3 {
			all[i].Workchain, all[i].Shard = 9, 1<<62
		}
	}

	write(lost[:1000])
	backUp()
	write(lost[1000:])
	restore()

	host := open(t, s.ClientURL(), &opts)
	for at := 1000; at < len(all); {
		next := min(at+130, len(all))
		write(all[at:next])
		at = next
		w := int32(9)
		expectPages(t, host, all[:at], []chaingql.BlocksQuery{
			{Last: 3, Workchain: &w}, {Last: 10, Workchain: &w}, {Last: 50, Workchain: &w},
			{First: 3, After: all[900].Cursor, Workchain: &w}, {First: 20, After: all[900].Cursor, Workchain: &w},
		})
	}
	expectPages(t, host, all, sparse(all[1100].Cursor))
	expectPages(t, host, all, sparse(all[2900].Cursor))
}

// TestWriterStoresMissingIndexNode deletes an index node but not its leaves, as if a Writer had died
// before it stored the node. The next Writer must store the node.
func TestWriterStoresMissingIndexNode(t *testing.T) {
	all := uneven(2100)
	s, b, _ := indexedChain(t, all[:2080])
	ctx := context.Background()
	index, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	subject := fmt.Sprintf("chain.index.%s.1.0", b.Epoch())
	node, err := index.GetLastMsgForSubject(ctx, subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := index.DeleteMsg(ctx, node.Sequence); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, b).Append(ctx, all[2080:]...); err != nil {
		t.Fatal(err)
	}
	if _, err := index.GetLastMsgForSubject(ctx, subject); err != nil {
		t.Errorf("index node %s after Append: got error %v, want none", subject, err)
	}
}

// TestWriterAppendsLostBlocksAgain restores the stream from a backup without the newest blocks. The
// Writer that stored these blocks must be able to append them again.
func TestWriterAppendsLostBlocksAgain(t *testing.T) {
	s := newBroker(t)
	b := open(t, s.ClientURL(), nil)
	w, all, ctx := writer(t, b), uneven(600), context.Background()
	backUp, restore := s.backups()
	if err := w.Append(ctx, all[:300]...); err != nil {
		t.Fatal(err)
	}
	backUp()
	if err := w.Append(ctx, all[300:]...); err != nil {
		t.Fatal(err)
	}
	restore()
	if err := w.Append(ctx, all[300:310]...); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, all[309:320]...); err != nil {
		t.Fatal(err)
	}
	expectPages(t, open(t, s.ClientURL(), nil), all[:320], []chaingql.BlocksQuery{{First: 1000}, {Last: 5}})
}

// TestBlocksWithSequenceNumbersOfLostStrayMessagesAreRead lets a Backend read stray messages. Then the stream is
// restored from a backup without these messages, and new blocks receive their sequence numbers. The
// Backend must not skip these blocks.
func TestBlocksWithSequenceNumbersOfLostStrayMessagesAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		blocks int  // number of blocks that are appended after the strays, before the restore
		stray  bool // whether another stray is published after the restore
		read   bool // whether the Backend reads pages after the restore
		follow bool // whether the Backend reads the strays only with Follow
	}{
		"read by page":                                     {},
		"read by page, then blocks":                        {blocks: 10},
		"read by page, restore, stray":                     {stray: true},
		"read by page, then blocks, restore, stray":        {blocks: 10, stray: true},
		"read by page, then blocks, restore, another page": {blocks: 10, read: true},
		"read by page, restore, stray, another page":       {stray: true, read: true},
		"read by Follow":                                   {follow: true},
		"read by Follow, then blocks":                      {blocks: 10, follow: true},
		"read by Follow, restore, stray":                   {stray: true, follow: true},
		"read by Follow, then blocks, restore, stray":      {blocks: 10, stray: true, follow: true},
		"read by Follow, restore, stray, page":             {stray: true, read: true, follow: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBroker(t)
			all, ctx := uneven(600), context.Background()
			host := open(t, s.ClientURL(), (&logbook{}).options())
			backUp, restore := s.backups()
			write := func(blocks []chaingql.Block) {
				t.Helper()
				b := open(t, s.ClientURL(), (&logbook{}).options())
				defer b.Close()
				if err := writer(t, b).Append(ctx, blocks...); err != nil {
					t.Fatal(err)
				}
			}
			stray := func() { s.publishStray(t, &all[0]) }
			write(all[:300])
			backUp()
			late := chaingql.BlocksQuery{First: 1000, After: all[250].Cursor}
			expectPages(t, host, all[:300], []chaingql.BlocksQuery{late})
			live := follow(t, host, all[299].Cursor)
			for range 20 {
				stray()
			}
			write(all[300 : 300+c.blocks])
			live.expect(all[300 : 300+c.blocks])
			for host.StrayCount() < 20 {
				time.Sleep(time.Millisecond)
			}
			if !c.follow {
				expectPages(t, host, all[:300+c.blocks], []chaingql.BlocksQuery{{Last: 5}, late})
			}
			restore()
			if c.stray {
				stray()
			}
			if c.read {
				expectPages(t, host, all[:300], []chaingql.BlocksQuery{{Last: 5}})
			}
			for at := 350; at <= 450; at += 50 {
				write(all[at-50 : at])
				queries := []chaingql.BlocksQuery{{Last: 5}, late, {Last: 120}}
				for i := 290; i < at; i++ {
					if i >= 340 && i%10 > 0 { // far after the messages that were lost
						continue
					}
					queries = append(queries, chaingql.BlocksQuery{First: 12, After: all[i].Cursor},
						chaingql.BlocksQuery{Last: 12, Before: all[i].Cursor})
				}
				expectPages(t, host, all[:at], queries)
				follow(t, host, all[280].Cursor).expect(all[281:at])
			}
		})
	}
}

// TestLostNewestBlockIsNotServed restores the stream from a backup without the newest block. Then a block with the same
// cursor takes its place. A Backend that has served the lost block must serve the other one.
func TestLostNewestBlockIsNotServed(t *testing.T) {
	s, all := newBroker(t), uneven(100)
	write := func(blocks []chaingql.Block) {
		t.Helper()
		b := open(t, s.ClientURL(), nil)
		defer b.Close()
		if err := writer(t, b).Append(t.Context(), blocks...); err != nil {
			t.Fatal(err)
		}
	}
	backUp, restore := s.backups()
	write(all[:99])
	backUp()
	write(all[99:])
	host := open(t, s.ClientURL(), nil)
	newest, after := chaingql.BlocksQuery{Last: 1}, chaingql.BlocksQuery{First: 10, After: all[99].Cursor}
	expectPage(t, host, newest, all[99:])
	lost := all[99].Hash
	restore()
	all[99] = forked(all[99:])[0]
	write(all[99:])
	expectPage(t, host, newest, all[99:])
	expectPage(t, host, chaingql.BlocksQuery{First: 1000}, all)
	expectPage(t, host, after, nil)
	if found, err := host.BlockByHash(t.Context(), lost); !errors.Is(err, chaingql.ErrBlockNotFound) {
		t.Errorf("BlockByHash of the lost block: got %v and error %v, want ErrBlockNotFound", found, err)
	}
}

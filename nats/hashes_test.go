package natschain_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

// hashed returns the chain that uneven returns, with hashes that depend on the name and differ from each other.
func hashed(n int, name string) []chaingql.Block {
	all := uneven(n)
	for i := range all {
		all[i].Hash = sha256.Sum256(fmt.Append(nil, name, i))
	}
	return all
}

// expectByHash looks up each block and compares the result. It returns the number of lookups that failed with
// ErrLookupNotSupported, which is an error if supported is set.
func expectByHash(t *testing.T, b *natschain.Backend, blocks []chaingql.Block, supported bool) (unsupported int) {
	t.Helper()
	for i := range blocks {
		got, err := b.BlockByHash(context.Background(), blocks[i].Hash)
		switch {
		case !supported && errors.Is(err, chaingql.ErrLookupNotSupported):
			unsupported++
		case err != nil || got != blocks[i]:
			t.Fatalf("BlockByHash of block %s: got %q and error %v", blocks[i].Cursor, got.Cursor, err)
		}
	}
	return unsupported
}

// expectUnknown looks up the blocks, which are not stored, and fails unless all errors are want.
func expectUnknown(t *testing.T, b *natschain.Backend, blocks []chaingql.Block, want error) {
	t.Helper()
	for i := range blocks {
		if got, err := b.BlockByHash(context.Background(), blocks[i].Hash); !errors.Is(err, want) {
			t.Fatalf("BlockByHash of an unknown block: got %q and error %v, want %v", got.Cursor, err, want)
		}
	}
}

// every returns every nth block.
func every(n int, all []chaingql.Block) (some []chaingql.Block) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

// TestHashLookupNeedsFewRequests looks up blocks in a chain that is long enough for three levels of the index.
// The number of requests may depend on the number of levels, but not on the length of the chain.
func TestHashLookupNeedsFewRequests(t *testing.T) {
	all := hashed(18_000, "chain")
	s, b, _ := indexedChain(t, all)
	x := newSpy(t, s.ClientURL())
	sum, most, lookups := 0, 0, append(every(501, all), every(1001, hashed(18_000, "other"))...)
	for i := range lookups {
		b.Forget()
		got, err := b.BlockByHash(context.Background(), lookups[i].Hash)
		stored := i <= 18_000/501
		if stored && (err != nil || got != lookups[i]) || !stored && !errors.Is(err, chaingql.ErrBlockNotFound) {
			t.Fatalf("lookup %d: got %q and error %v", i, got.Cursor, err)
		}
		requests, searches, _ := x.saw()
		// At most 15 buckets on each of 3 levels, with a check of each node, and 8 others.
		if requests > 2*15*3+8 || searches > 0 {
			t.Errorf("lookup %d needed %d requests and %d searches by subject, want at most %d and 0", i, requests,
				searches, 2*15*3+8)
		}
		sum, most = sum+requests, max(most, requests)
	}
	t.Logf("a lookup with empty caches needed %d requests on average and at most %d", sum/len(lookups), most)
	expectByHash(t, b, every(97, all), true)
	x.saw()
	expectByHash(t, b, every(1009, all), true)
	requests, _, _ := x.saw()
	t.Logf("a lookup in a warm cache needed %d requests on average", requests/len(every(1009, all)))
}

// TestWriterBuildsMissingHashIndex removes the hash index, as if an earlier version had written the chain. Until
// a Writer has built the index, an old block must not seem to be absent.
func TestWriterBuildsMissingHashIndex(t *testing.T) {
	all, ctx := hashed(10_000, "chain"), context.Background()
	unknown := hashed(180, "other")[:3]
	s, b, _ := indexedChain(t, all[:9_000])
	index, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.Purge(ctx, jetstream.WithPurgeSubject("chain.index.*.hash.>")); err != nil {
		t.Fatal(err)
	}
	expectByHash(t, b, every(150, all[7_000:9_000]), true) // they are read from the block stream
	expectUnknown(t, b, unknown, chaingql.ErrLookupNotSupported)
	if n := expectByHash(t, b, every(500, all[:6_500]), false); n != 13 {
		t.Errorf("%d lookups of old blocks without an index were not supported, want 13", n)
	}
	w := writer(t, b)
	for n := 9_000; n < 9_010; n++ {
		if err := w.Append(ctx, all[n]); err != nil {
			t.Fatal(err)
		}
		if n < 9_003 {
			expectUnknown(t, b, unknown, chaingql.ErrLookupNotSupported)
		}
		expectByHash(t, b, all[n:n+1], true)
		expectByHash(t, b, every(1000, all[:n]), false)
	}
	expectByHash(t, b, every(60, all[:9_010]), true)
	expectUnknown(t, b, unknown, chaingql.ErrBlockNotFound)
}

// TestWriterStoresMissingBucket deletes a bucket, as if a Writer had died after it stored the leaf. The next Writer
// must store the bucket.
func TestWriterStoresMissingBucket(t *testing.T) {
	all, ctx := hashed(2_600, "chain"), context.Background()
	s, _, _ := indexedChain(t, all[:2_570])
	index, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	info, err := index.Info(ctx, jetstream.WithSubjectFilter("chain.index.*.hash.0.1.0"))
	if err != nil || len(info.State.Subjects) != 1 {
		t.Fatalf("the index has the buckets %v, error %v, want the first one of level 1", info.State.Subjects, err)
	}
	for subject := range info.State.Subjects {
		if err := index.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
			t.Fatal(err)
		}
		if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, all[2_570:]...); err != nil {
			t.Fatal(err)
		}
		if _, err := index.GetLastMsgForSubject(ctx, subject); err != nil {
			t.Errorf("bucket %s after Append: got error %v, want none", subject, err)
		}
	}
}

// TestHashIndexOfLostBlocksIsIgnored restores the block stream from a backup, but not the index. Then the chain
// continues with other blocks than before. No lookup may find a lost block or miss a new one.
func TestHashIndexOfLostBlocksIsIgnored(t *testing.T) {
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
	lost, all := hashed(4600, "lost"), hashed(4600, "new")
	copy(all, lost[:1000])
	write(lost[:1000])
	backUp()
	write(lost[1000:])
	before := open(t, s.ClientURL(), &opts)
	expectByHash(t, before, every(20, lost), true)
	restore()
	after := open(t, s.ClientURL(), &opts)
	for at := 1000; at < len(all); {
		next := min(at+600, len(all))
		write(all[at:next])
		at = next
		for _, b := range []*natschain.Backend{before, after} {
			expectByHash(t, b, every(373, all[:at]), false)
			for _, gone := range every(391, lost[1000:]) {
				if got, err := b.BlockByHash(context.Background(), gone.Hash); err == nil {
					t.Fatalf("BlockByHash found %q, which was lost", got.Cursor)
				}
			}
		}
	}
	expectByHash(t, after, every(19, all), true)
	expectByHash(t, before, every(19, all), true)
	expectUnknown(t, after, every(91, lost[1000:]), chaingql.ErrBlockNotFound)
}

// TestPrunedBlocksAreNotFoundByHash prunes the chain several times while the index grows.
func TestPrunedBlocksAreNotFoundByHash(t *testing.T) {
	all, ctx := hashed(30_000, "chain"), context.Background()
	s, b, w := indexedChain(t, all[:6_000])
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	for at := 6_000; ; at += 3_000 {
		keep := at - 4_500
		if err := w.Prune(ctx, all[keep].Cursor); err != nil {
			t.Fatal(err)
		}
		b.Forget()
		expectUnknown(t, b, every(189, all[:keep]), chaingql.ErrBlockNotFound)
		expectByHash(t, b, all[keep:keep+1], true)
		expectByHash(t, b, every(189, all[keep:at]), true)
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n := info.State.Msgs; n > 100 { // 18 leaves and the nodes above
			t.Errorf("the index has %d messages for 4,500 blocks after %d were pruned", n, keep)
		}
		if at == len(all) {
			break
		}
		if err := w.Append(ctx, all[at:at+3_000]...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStrayMessageIsNotFoundByHash publishes messages that are not blocks, some with the hash of a block, and
// overwrites nodes of the index.
func TestStrayMessageIsNotFoundByHash(t *testing.T) {
	all, ctx := hashed(3_000, "chain"), context.Background()
	s := newBroker(t)
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w, js := writer(t, b), raw(t, s.ClientURL())
	var strays []chaingql.Block
	for i := 0; i < len(all); i += 500 {
		if err := w.Append(ctx, all[i:i+500]...); err != nil {
			t.Fatal(err)
		}
		for j, hash := range []chaingql.Hash{all[i].Hash, all[i+250].Hash, sha256.Sum256(fmt.Append(nil, i))} {
			stray := all[i+499]
			if stray.Hash = hash; j == 2 {
				strays = append(strays, stray)
			}
			payload := fmt.Sprintf(`{"cursor":"%s0","prev":"1","seq_no":1,"hash":"%v","time":"2023-11-14T22:13:20Z"}`,
				stray.Cursor, hash)
			if _, err := js.Publish(ctx, subjectOf(&stray), []byte(payload)); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectByHash(t, b, every(50, all), true)
	expectUnknown(t, b, strays, chaingql.ErrBlockNotFound)

	for i, junk := range []string{`{}`, `[]`, `{"hashes":"AAAA"}`, `junk`} {
		subject := fmt.Sprintf("chain.index.%s.hash.0.0.%d", b.Epoch(), i)
		if _, err := js.Publish(ctx, subject, []byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	b.Forget()
	expectByHash(t, b, every(50, all), true)
	expectUnknown(t, b, strays, chaingql.ErrBlockNotFound)
}

// TestWritersStoreEqualHashIndexes compares the index of two Writers that append alternately with that of one Writer.
func TestWritersStoreEqualHashIndexes(t *testing.T) {
	all, ctx := hashed(6_000, "chain"), context.Background()
	var indexes []map[string]int
	for writers := range 2 {
		s := newBroker(t)
		b := open(t, s.ClientURL(), nil)
		w := []*natschain.Writer{writer(t, b), writer(t, open(t, s.ClientURL(), nil))}
		for n, i := 0, 0; n < len(all); i++ {
			end := min(n+1+i*37%700, len(all))
			if err := w[i*writers%2].Append(ctx, all[n:end]...); err != nil {
				t.Fatal(err)
			}
			n = end
		}
		stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
		if err != nil {
			t.Fatal(err)
		}
		index := map[string]int{}
		for seq := range stream.CachedInfo().State.LastSeq {
			m, err := stream.GetMsg(ctx, seq+1)
			if errors.Is(err, jetstream.ErrMsgNotFound) { // replaced by an equal node
				continue
			}
			var node struct{ Hashes []byte }
			if err == nil {
				err = json.Unmarshal(m.Data, &node)
			}
			if err != nil {
				t.Fatal(err)
			}
			if node.Hashes != nil {
				index[m.Subject[len("chain.index.1234567890123456789."):]] += len(node.Hashes)
			}
		}
		indexes = append(indexes, index)
		expectByHash(t, b, every(31, all), true)
	}
	if one, two := fmt.Sprint(indexes[0]), fmt.Sprint(indexes[1]); one != two || len(indexes[0]) < 30 {
		t.Errorf("two Writers stored the index\n%s\nand one Writer stored\n%s", two, one)
	}
	if indexes[0]["hash.0.0.3"] != 256*12 {
		t.Errorf("leaf 3 has %d bytes of hashes", indexes[0]["hash.0.0.3"])
	}
}

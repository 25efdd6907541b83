package natschain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/chaingql/chaingql"
)

// The hash index finds blocks by their hashes. It is in the index stream, too, and its nodes
// cover the same ranges of messages as those of the block index. A node of level l has
// fan^l buckets, one for each value of the first fanBits*l bits of a hash. Each bucket is a
// message. It lists the blocks with such hashes, which are about leafSize blocks on every
// level. A lookup reads one bucket of each of the largest nodes that together cover the
// stream: on average seven per level.
//
// A [Writer] stores the only bucket of a leaf like a node of the block index. With each
// leaf, it also stores one bucket of each higher level, from the buckets of the level
// below. The work for a leaf is therefore the same in a long chain, and a node is complete
// when about as many messages follow it as it covers. Until then, lookups read the nodes
// below it.
const (
	hashBytes      = 6             // length of the part of a hash that a bucket lists
	hashEntryBytes = hashBytes + 6 // length of an entry: the hash, and the sequence number
	maxUnindexed   = 9             // maximum number of missing leaves, with the newest one, whose messages are read
)

// hashPrefix returns the prefix of the subjects of all nodes with the given bucket.
func hashPrefix(prefix string, bucket uint64) string {
	return prefix + "hash." + strconv.FormatUint(bucket, 10) + "."
}

// bucketOf returns the bucket of a level for a hash. It needs only the first hashBytes bytes
// of the hash, but hash must have eight bytes.
func bucketOf(hash []byte, level int) uint64 {
	return binary.BigEndian.Uint64(hash) >> (64 - fanBits*level)
}

// withHash returns the sequence numbers of the blocks in n that may have the hash, ascending.
func (n *node) withHash(hash *chaingql.Hash) (seqs []uint64) {
	for e := range slices.Chunk(n.Hashes, hashEntryBytes) {
		if bytes.Equal(e[:hashBytes], hash[:hashBytes]) {
			var seq [8]byte
			copy(seq[8-(hashEntryBytes-hashBytes):], e[hashBytes:])
			seqs = append(seqs, binary.BigEndian.Uint64(seq[:]))
		}
	}
	return seqs
}

// bucket returns a bucket of node k of a level of the hash index. It returns false if the
// bucket does not exist, or if it does not describe the blocks that the stream contains now.
func (b *Backend) bucket(ctx context.Context, prefix string, level int, k, bucket uint64) (*node, bool, error) {
	n, found, err := b.node(ctx, hashPrefix(prefix, bucket), level, k)
	if err != nil || !found || n.Hashes == nil || len(n.Hashes)%hashEntryBytes != 0 {
		return nil, false, err
	}
	if b.nodes.isVerified(n.End) {
		b.nodes.put(n)
		return n, true, nil
	}
	is, err := b.matchesStream(ctx, n.End)
	if err == nil && !is {
		b.nodes.forget(prefix)
	}
	if err != nil || !is {
		return nil, false, err
	}
	b.nodes.verify(n.End)
	b.nodes.put(n)
	return n, true, nil
}

// BlockByHash returns the block with a hash, as [chaingql.HashIndex] specifies. If several
// blocks have the hash, it may return any of them. With empty caches, it needs about 14
// requests to NATS per level of the index, which has four levels for a million blocks, and
// some more. The caches save most of them.
//
// If the index lacks more than the newest 2,048 blocks, BlockByHash returns
// [chaingql.ErrLookupNotSupported] for a block that is not in the index. The index of a chain
// that was written by an earlier version is incomplete until a [Writer] has extended it.
func (b *Backend) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	return b.find(ctx, func(ctx context.Context) (stored, error) { return b.searchHash(ctx, &hash) })
}

func (b *Backend) searchHash(ctx context.Context, hash *chaingql.Hash) (stored, error) {
	for oldest := uint64(0); ; {
		_, found, end, err := b.tail(ctx)
		if err == nil && !found {
			err = chaingql.ErrBlockNotFound
		}
		if err != nil {
			return stored{}, err
		}
		x := hashLookup{b: b, hash: hash}
		was := oldest
		if x.prefix, oldest, err = b.readIndexPrefix(ctx); err != nil {
			return stored{}, err
		}
		if b.nodes.prefix() != x.prefix {
			b.nodes.forget(x.prefix)
		}
		x.in = seqRange{max(oldest, 1), end + 1}
		s, found, err := x.find(ctx)
		switch {
		case err != nil || found:
			return s, err
		case !x.incomplete:
			return stored{}, chaingql.ErrBlockNotFound
		case oldest == was: // nodes are missing, but not because they are being pruned
			return stored{}, failed("find a block by its hash", errIncompleteIndex)
		}
	}
}

// A hashLookup uses the hash index to find a block.
type hashLookup struct {
	b         *Backend
	hash      *chaingql.Hash
	prefix    string
	in        seqRange   // range of the messages in the stream
	steps     int        // number of buckets requested
	unindexed []seqRange // leaves that the index lacks, descending

	incomplete bool // whether the index lacks so much that the lookup gave up
}

// find searches the index from the end of the stream on, and then the leaves that it lacks.
func (x *hashLookup) find(ctx context.Context) (s stored, found bool, err error) {
	level := 0
	for level < levels-1 && width(level) < x.in.end {
		level++
	}
	for k := (x.in.end - 1) / width(level); err == nil && !found && k+1 > (x.in.from-1)/width(level); k-- {
		s, found, err = x.search(ctx, level, k)
	}
	if err != nil || found {
		return s, found, err
	}
	return x.scan(ctx)
}

// search searches node k of a level, and the nodes below it if the node is missing.
func (x *hashLookup) search(ctx context.Context, level int, k uint64) (s stored, found bool, err error) {
	in := rangeOf(level, k)
	if in.end <= x.in.from || in.from >= x.in.end || x.incomplete {
		return stored{}, false, nil
	}
	if in.end <= x.in.end {
		x.steps++
		n, found, err := x.b.bucket(ctx, x.prefix, level, k, bucketOf(x.hash[:], level))
		if err != nil {
			return stored{}, false, err
		}
		if found {
			return x.first(ctx, n.withHash(x.hash))
		}
	}
	if x.incomplete = x.steps > maxLookupSteps || level == 0 && len(x.unindexed) == maxUnindexed; x.incomplete {
		return stored{}, false, nil
	}
	if level == 0 {
		x.unindexed = append(x.unindexed, in)
		return stored{}, false, nil
	}
	for child := (k+1)*fan - 1; ; child-- {
		if s, found, err = x.search(ctx, level-1, child); err != nil || found || child == k*fan {
			return s, found, err
		}
	}
}

// scan searches the leaves that the index lacks. The newest messages never have a leaf yet.
func (x *hashLookup) scan(ctx context.Context) (stored, bool, error) {
	for _, leaf := range x.unindexed {
		hashes, err := x.read(ctx, leaf)
		if err != nil {
			return stored{}, false, err
		}
		var seqs []uint64
		for i := range hashes {
			if hashes[i].hash == *x.hash {
				seqs = append(seqs, hashes[i].seq)
			}
		}
		if s, found, err := x.first(ctx, seqs); err != nil || found {
			return s, found, err
		}
	}
	return stored{}, false, nil
}

// read returns the hashes of the messages in a leaf that the index lacks. It reads only the
// messages that are not cached.
func (x *hashLookup) read(ctx context.Context, leaf seqRange) ([]blockID, error) {
	known, generation := x.b.leaves.get(leaf.from)
	first := max(leaf.from, x.in.from)
	if first < known.from || first > known.next { // pruned messages were restored from a backup, or may be restored
		known = leafHashes{}
	}
	from, end := max(first, known.next), min(leaf.end, x.in.end)
	if from >= end {
		return known.hashes, nil
	}
	messages, err := x.b.between(ctx, from, end)
	if err != nil {
		return nil, err
	}
	hashes := slices.Clone(known.hashes)
	for i := range messages {
		if s := &messages[i]; s.bad == nil {
			hashes = append(hashes, blockID{s.seq, s.block.Hash})
		}
	}
	x.b.leaves.put(leaf.from, leafHashes{cmp.Or(known.from, first), end, hashes}, generation)
	return hashes, nil
}

// first returns the first of the messages that is a block with the hash. It returns errReplaced if a message has a hash
// with which neither the index nor the cache can list it.
func (x *hashLookup) first(ctx context.Context, seqs []uint64) (stored, bool, error) {
	for _, seq := range seqs {
		if x.steps++; x.steps > 2*maxLookupSteps {
			x.incomplete = true
			break
		}
		s, found, err := x.b.block(ctx, getRequest{Seq: seq})
		if err == nil && found && !bytes.Equal(s.block.Hash[:hashBytes], x.hash[:hashBytes]) {
			err = errReplaced
		}
		if err == nil && found && s.bad == nil && s.block.Hash == *x.hash {
			if found, err = x.b.isLinked(ctx, s); found {
				return s, true, err
			}
		}
		if err != nil {
			return stored{}, false, err
		}
	}
	return stored{}, false, nil
}

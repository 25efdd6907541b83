package natschain

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"slices"
)

// storeHashes stores a leaf of the hash index, which contains the given blocks and end, and one
// bucket of each higher level. The buckets of a level are stored in order, from one leaf to
// the next. Each level begins a leaf later than the level below it, so that the buckets that
// it needs are stored already.
func (w *Writer) storeHashes(ctx context.Context, prefix string, leaf uint64, blocks []stored, end position) error {
	n := &node{Hashes: []byte{}, End: end}
	for i := range blocks {
		n.Hashes = appendHash(n.Hashes, &blocks[i])
	}
	var messages []nodeMessage
	add := func(level int, k, bucket uint64, n *node) error {
		payload, err := json.Marshal(n)
		if err != nil || len(payload) > nodeBytes { // too many equal hashes: lookups use the nodes below
			return err
		}
		n.subject, n.size = nodeSubject(hashPrefix(prefix, bucket), level, k), len(payload)
		w.b.nodes.put(n)
		messages = append(messages, nodeMessage{n, payload})
		return nil
	}
	err := add(0, leaf, 0, n)
	for level := 1; err == nil && level < levels; level++ {
		n := uint64(1) << (fanBits * level) // number of buckets of a node, and number of leaves that it covers
		if leaf < n+uint64(level) {
			break
		}
		k, bucket := (leaf-uint64(level))/n-1, (leaf-uint64(level))%n
		var merged *node
		if merged, err = w.mergeHashes(ctx, prefix, level, k, bucket); merged != nil {
			err = add(level, k, bucket, merged)
		}
	}
	if err == nil {
		err = w.sendNodes(ctx, messages)
	}
	return err
}

// mergeHashes returns a bucket of node k of a level, made from the nodes below it. It returns
// nil if one of them is missing, for example because it was pruned.
func (w *Writer) mergeHashes(ctx context.Context, prefix string, level int, k, bucket uint64) (*node, error) {
	above := &node{Hashes: []byte{}}
	for child := k * fan; child < (k+1)*fan; child++ {
		below, found, err := w.b.bucket(ctx, prefix, level-1, child, bucket>>fanBits)
		if err != nil || !found {
			return nil, err
		}
		for e := range slices.Chunk(below.Hashes, hashEntryBytes) {
			if bucketOf(e, level) == bucket {
				above.Hashes = append(above.Hashes, e...)
			}
		}
		above.End = below.End
	}
	return above, nil
}

func appendHash(list []byte, s *stored) []byte {
	list = append(list, s.block.Hash[:hashBytes]...)
	return append(list, binary.BigEndian.AppendUint64(nil, s.seq)[8-(hashEntryBytes-hashBytes):]...)
}

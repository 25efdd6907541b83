package natschain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/chaingql/chaingql"
)

// The block index lists the blocks of each shard in the block stream. With the index, a
// page of a shard with few blocks needs no search by subject. Such a search is expensive,
// because the server counts all matching messages in the rest of the stream. The index is
// a tree, which has a stream of its own, <chain>_index:
//
//	level 2  |                 0                 |   leafSize << 6 messages per node
//	level 1  |   0   |   1   |  ...  |     7     |   leafSize << 3
//	level 0  |0|1|...|8|...                      |   leafSize
//
// Each node covers a range of messages; node k of a level begins at message k*width(level)+1. The node lists all blocks
// of each shard that has at most maxListed blocks in the range. Of the other shards, it contains only the names. A
// [Writer] stores a node as soon as the stream has a block after the node's range. Messages do not change, so nodes do
// not change either. A Writer therefore keeps a stored node, unless the stream has lost messages of its range. If a
// range has no node, its blocks are read from the block stream or searched by subject.
const (
	leafSize       = 256          // number of messages that a node of level 0 covers
	fanBits        = 3            // log2 of fan
	fan            = 1 << fanBits // number of children of a node
	levels         = 12           // enough for 1<<41 messages
	maxListed      = 64           // maximum number of blocks that a node lists per shard
	nodeBytes      = 256 << 10    // maximum size of a node as JSON: larger nodes list fewer blocks
	maxLookupSteps = 200          // maximum number of steps of a lookup: the rest is searched by subject
)

// width returns the number of messages that a node of the given level covers.
func width(level int) uint64 { return leafSize << (fanBits * level) }

// A node is one node of the tree that forms the block index. Its shard names have the form
// <workchain>.<shard in 16 hex digits>.
type node struct {
	// Blocks lists all blocks in the node's range, ascending, by shard name. It omits the
	// shards in Many.
	Blocks map[string][]entry `json:"blocks,omitzero"`
	// Many contains the names of the shards that have too many blocks to list, in ascending order.
	Many []string `json:"many,omitempty"`
	// Hashes lists blocks in a node of the hash index, ascending. Such a node has no Blocks.
	Hashes []byte `json:"hashes,omitzero"`
	// End is the first message after the node's range. If the stream does not have it any more, the stream lost its
	// newest messages and then received others, and the node may list blocks that were lost.
	End position `json:"after,omitzero"`

	subject string
	size    int // as JSON, if the node was read
}

// A position identifies a message of the block stream. The time distinguishes the message from an equal one that was
// stored again after the stream had lost it.
type position struct {
	Seq      uint64 `json:"seq"`
	Received int64  `json:"received,string"` // when the server received the message, in nanoseconds
}

func (s *stored) position() position { return position{s.seq, s.received.UnixNano()} }

// An entry describes a block in a node.
type entry struct {
	Seq    uint64           `json:"seq"`
	Cursor chaingql.Cursor  `json:"cursor"`
	Prev   *chaingql.Cursor `json:"prev,omitempty"`
	SeqNo  uint32           `json:"seq_no"`
	Hash   []byte           `json:"hash"`
	Time   time.Time        `json:"time"`
	Epoch  int64            `json:"epoch,omitempty,string"`
}

func entryOf(s *stored) entry {
	return entry{s.seq, s.block.Cursor, s.prev, s.block.SeqNo, s.block.Hash[:], s.block.Time, s.epoch}
}

func (e *entry) stored(q chaingql.BlocksQuery) stored {
	s := stored{seq: e.Seq, prev: e.Prev, epoch: e.Epoch, block: chaingql.Block{
		Workchain: *q.Workchain, Shard: *q.Shard, SeqNo: e.SeqNo, Time: e.Time, Cursor: e.Cursor,
	}}
	copy(s.block.Hash[:], e.Hash)
	return s
}

// matching returns the blocks of the node that q selects. It returns false if the node
// does not list all of them.
func (n *node) matching(q chaingql.BlocksQuery) ([]stored, bool) {
	for _, shard := range n.Many {
		if one, ok := shardQuery(shard); ok && selects(q, one) {
			return nil, false
		}
	}
	var got []stored
	for shard, entries := range n.Blocks {
		if one, ok := shardQuery(shard); ok && selects(q, one) {
			for i := range entries {
				got = append(got, entries[i].stored(one))
			}
		}
	}
	slices.SortFunc(got, func(a, b stored) int { return cmp.Compare(a.seq, b.seq) })
	return got, true
}

// shardQuery returns a query that selects one shard. It returns false if the shard name,
// which comes from a node, is malformed.
func shardQuery(shard string) (q chaingql.BlocksQuery, ok bool) {
	w, s, err := shardOf(shard)
	return chaingql.BlocksQuery{Workchain: &w, Shard: &s}, err == nil
}

// selects reports whether q selects the blocks of a shard. The argument shard is a result
// of shardQuery.
func selects(q, shard chaingql.BlocksQuery) bool {
	return (q.Workchain == nil || *q.Workchain == *shard.Workchain) && (q.Shard == nil || *q.Shard == *shard.Shard)
}

// node returns node k of a level of the index, and false if that node does not exist. It does
// not cache the node, which may describe blocks that the stream has lost; see matchesStream.
func (b *Backend) node(ctx context.Context, prefix string, level int, k uint64) (*node, bool, error) {
	subject := nodeSubject(prefix, level, k)
	if n, known := b.nodes.get(subject); known {
		return n, true, nil
	}
	f, found, err := b.get(ctx, b.names.index, getRequest{Last: subject, NoHead: true})
	switch {
	case hasCode(err, streamNotFound): // the chain has no index
		return nil, false, nil
	case err != nil || !found:
		return nil, false, failed("read the index", err)
	}
	n := &node{subject: subject, size: len(f.Message.Data)}
	if err := json.Unmarshal(f.Message.Data, n); err != nil || n.Blocks == nil && n.Many == nil && n.Hashes == nil {
		return nil, false, nil // a malformed node is treated as missing
	}
	if n.End.Seq < rangeOf(level, k).end { // stored by an earlier version
		return nil, false, nil
	}
	return n, true, nil
}

// matchesStream reports whether a node with the given End describes the blocks that the stream contains now. If not,
// the stream lost its newest messages in a restore or a power cut and then received others.
func (b *Backend) matchesStream(ctx context.Context, end position) (bool, error) {
	s, found, err := b.block(ctx, getRequest{Seq: end.Seq, Next: b.names.all()})
	if err != nil || !found {
		return false, err
	}
	return s.position() == end || s.seq > end.Seq, nil // if seq is higher, the message was pruned or removed
}

// indexPrefix returns the prefix of all index subjects. The prefix contains the
// epoch of the block stream, so that a new stream with the same name gets a new index.
func (b *Backend) indexPrefix(ctx context.Context) (string, error) {
	if prefix := b.nodes.prefix(); prefix != "" {
		return prefix, nil
	}
	prefix, _, err := b.readIndexPrefix(ctx)
	if err == nil {
		b.nodes.forget(prefix)
	}
	return prefix, err
}

// readIndexPrefix requests the state of the block stream. It returns the prefix of the index
// subjects and the sequence number of the oldest message.
func (b *Backend) readIndexPrefix(ctx context.Context) (prefix string, oldest uint64, err error) {
	epoch, whole, err := b.state(ctx)
	return b.names.indexSubject + epoch + ".", whole.from, err
}

func nodeSubject(prefix string, level int, k uint64) string {
	return prefix + strconv.Itoa(level) + "." + strconv.FormatUint(k, 10)
}

// A lookup uses the index to find the first or last blocks in a range of the stream that
// a query selects. Blocks that the index does not list are read from the stream.
type lookup struct {
	b       *Backend
	q       chaingql.BlocksQuery
	prefix  string   // prefix of the index subjects
	left    seqRange // part of the range that is not searched yet
	forward bool     // whether to find the first blocks; otherwise the last ones
	nodes   []*node  // all nodes read
	end     position // the End with the highest sequence number of these nodes
}

// lookUp returns up to n blocks in the range that q selects: the first ones or the last ones. It also returns the part
// of the range that it did not search, which is empty if the page is complete.
func (b *Backend) lookUp(
	ctx context.Context, q chaingql.BlocksQuery, in seqRange, n int,
) (page []stored, left seqRange, err error) {
	x := lookup{b: b, q: q, left: in, forward: q.First > 0}
	if x.prefix, err = b.indexPrefix(ctx); err != nil {
		return nil, in, err
	}
	for steps := 0; len(page) < n && x.left.from < x.left.end && steps < maxLookupSteps; steps++ {
		part, got, found, err := x.step(ctx)
		if err != nil {
			return nil, in, err
		}
		if !found {
			break
		}
		if x.forward {
			page, x.left.from = append(page, got...), part.end
		} else {
			page, x.left.end = append(got, page...), part.from
		}
	}
	is := true
	if x.end.Seq > 0 {
		is, err = b.matchesStream(ctx, x.end)
	}
	switch {
	case err != nil:
		return nil, in, err
	case !is:
		b.nodes.forget("")
		return nil, in, nil
	}
	b.nodes.put(x.nodes...)
	if page, err = x.present(ctx, page); err != nil || len(page) < n {
		return page, x.left, err
	}
	if x.forward {
		return page[:n], seqRange{}, nil
	}
	return page[len(page)-n:], seqRange{}, nil
}

// A seqRange is the range [from, end) of stream sequence numbers.
type seqRange struct{ from, end uint64 }

func rangeOf(level int, k uint64) seqRange {
	return seqRange{k*width(level) + 1, (k+1)*width(level) + 1}
}

func (s seqRange) in(other seqRange) bool { return s.from >= other.from && s.end <= other.end }

// step searches the next part of x.left, which is the range of messages that the lookup has not searched yet: the first
// part if x.forward is set, and the last part otherwise. The part is the range of the largest index node in x.left that
// lists all matching blocks. If there is no such node, step reads leafSize messages from the stream. found is false if
// the index lacks a node there although the stream continued long ago.
func (x *lookup) step(ctx context.Context) (part seqRange, got []stored, found bool, err error) {
	b, left := x.b, x.left
	edge := left.end - 2 // zero-based number of the message at the edge of left
	if x.forward {
		edge = left.from - 1
	}
	var n *node
	for level := levels - 1; level >= 0; level-- {
		part = rangeOf(level, edge/width(level))
		if level > 0 && !part.in(left) {
			continue
		}
		if n, found, err = b.node(ctx, x.prefix, level, edge/width(level)); err != nil {
			return part, nil, false, err
		}
		if !found {
			continue
		}
		if x.nodes = append(x.nodes, n); n.End.Seq > x.end.Seq {
			x.end = n.End
		}
		if blocks, ok := n.matching(x.q); ok {
			part = seqRange{max(part.from, left.from), min(part.end, left.end)}
			return part, part.filter(blocks), true, nil
		}
	}
	if !found { // normal near the end of the stream, where leaves are not stored yet
		newest, any, err := b.newest(ctx, b.names.all())
		if err != nil || !any || newest.seq > part.end+4*leafSize {
			return part, nil, false, err
		}
	}
	part = seqRange{max(part.from, left.from), min(part.end, left.end)}
	blocks, err := b.blocksIn(ctx, part)
	return part, matching(blocks, x.q), err == nil, err
}

// blocksIn reads the blocks in s, which contains at most leafSize messages.
func (b *Backend) blocksIn(ctx context.Context, s seqRange) ([]stored, error) {
	blocks, err := b.surroundings(ctx, s.from, s.end, leafSize, 0)
	return s.filter(blocks), err
}

// filter returns the blocks that are in the range s. It modifies the argument.
func (s seqRange) filter(blocks []stored) []stored {
	return slices.DeleteFunc(blocks, func(b stored) bool { return b.seq < s.from || b.seq >= s.end })
}

// present returns the blocks of page that are still in the stream. It returns errReplaced
// if the stream was replaced, because page may then contain blocks of the old stream.
func (x *lookup) present(ctx context.Context, page []stored) ([]stored, error) {
	prefix, oldest, err := x.b.readIndexPrefix(ctx)
	switch {
	case err != nil:
		return nil, err
	case prefix != x.prefix:
		return nil, errReplaced
	}
	return slices.DeleteFunc(page, func(s stored) bool { return s.seq < oldest }), nil
}

package natschain

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// The index of a chain lists the blocks of each shard in a range of the stream. With
// it, a page of a shard with few blocks needs no search by subject, for which servers
// count all matches in the rest of the stream. The index is a tree in a stream of its
// own, <chain>_index:
//
//	level 2  |                 0                 |   leafSize << 6 messages each
//	level 1  |   0   |   1   |  ...  |     7     |   leafSize << 3
//	level 0  |0|1|...|8|...                      |   leafSize
//
// Node k of a level covers the messages from k times its width on. It contains the
// blocks of each shard that has at most maxListed blocks there, and the names of the
// other shards. A [Writer] stores a node as soon as a block follows its range.
// Messages do not change, so nodes do not change either, and two Writers store equal
// nodes. Ranges without a node are read from the stream, or searched by subject.
const (
	leafSize       = 256 // messages of a node of level 0
	fanBits        = 3   // log2 of the number of children of a node
	fan            = 1 << fanBits
	levels         = 12 // enough for 1<<41 messages
	maxListed      = 64
	nodeBytes      = 256 << 10 // maximum size of a node: a larger one lists fewer blocks
	maxLookupSteps = 200       // chains with thousands of shards may need more: the rest is searched
)

// width returns the number of messages that a node of a level covers.
func width(level int) uint64 { return leafSize << (fanBits * level) }

// A node is a node of the index. Shards are named <workchain>.<shard in 16 hex digits>.
type node struct {
	Blocks map[string][]entry `json:"blocks"`         // all blocks of a shard in the node's range, ascending
	Many   []string           `json:"many,omitempty"` // shards with too many blocks to list, ascending
	End    *entry             `json:"end,omitempty"`  // the last block in the range
}

// An entry is a block of a node.
type entry struct {
	Seq    uint64           `json:"seq"`
	Cursor chaingql.Cursor  `json:"cursor"`
	Prev   *chaingql.Cursor `json:"prev,omitempty"`
	SeqNo  uint32           `json:"seq_no"`
	Hash   []byte           `json:"hash"`
	Time   time.Time        `json:"time"`
}

func entryOf(s *stored) entry {
	return entry{s.seq, s.block.Cursor, s.prev, s.block.SeqNo, s.block.Hash[:], s.block.Time}
}

func (e *entry) stored(q chaingql.BlocksQuery) stored {
	s := stored{seq: e.Seq, prev: e.Prev, block: chaingql.Block{
		Workchain: *q.Workchain, Shard: *q.Shard, SeqNo: e.SeqNo, Time: e.Time, Cursor: e.Cursor,
	}}
	copy(s.block.Hash[:], e.Hash)
	return s
}

// matching returns the blocks of the node that a query selects, and false if the node
// does not list all of them.
func (n *node) matching(q chaingql.BlocksQuery) ([]stored, bool) {
	for _, shard := range n.Many {
		if one, ok := only(shard); ok && selects(q, one) {
			return nil, false
		}
	}
	var got []stored
	for shard, entries := range n.Blocks {
		if one, ok := only(shard); ok && selects(q, one) {
			for i := range entries {
				got = append(got, entries[i].stored(one))
			}
		}
	}
	slices.SortFunc(got, func(a, b stored) int { return cmp.Compare(a.seq, b.seq) })
	return got, true
}

// only returns a query for one shard, from the shard's name in a node.
func only(shard string) (q chaingql.BlocksQuery, ok bool) {
	w, s, err := shardOf(shard)
	return chaingql.BlocksQuery{Workchain: &w, Shard: &s}, err == nil
}

// selects reports whether a query selects blocks of a shard.
func selects(q, shard chaingql.BlocksQuery) bool {
	return (q.Workchain == nil || *q.Workchain == *shard.Workchain) && (q.Shard == nil || *q.Shard == *shard.Shard)
}

// node returns a node of the index, and false if it does not exist.
func (b *Backend) node(ctx context.Context, prefix string, level int, k uint64) (*node, bool, error) {
	subject := nodeSubject(prefix, level, k)
	if n, known := b.nodes.get(subject); known {
		return n, true, nil
	}
	f, found, err := b.get(ctx, b.names.index, getRequest{Last: subject, NoHead: true})
	switch {
	case hasCode(err, streamNotFound): // a chain without an index
		return nil, false, nil
	case err != nil || !found:
		return nil, false, failed("read the index", err)
	}
	n := &node{}
	if err := json.Unmarshal(f.Message.Data, n); err != nil {
		return nil, false, nil // treated like a node that does not exist
	}
	b.nodes.put(subject, n, len(f.Message.Data))
	return n, true, nil
}

// matchesStream reports whether a node with this end lists the blocks of the stream. If
// the stream lost its newest blocks, in a restore or a power cut, and continued with
// others, the index still contains nodes with the lost blocks.
func (b *Backend) matchesStream(ctx context.Context, end *entry) (bool, error) {
	if end == nil {
		return true, nil
	}
	s, found, err := b.block(ctx, getRequest{Seq: end.Seq, Next: b.names.all()})
	if err != nil || !found {
		return false, err
	}
	same := s.bad == nil && s.block.Cursor == end.Cursor && bytes.Equal(s.block.Hash[:], end.Hash)
	return same || s.seq > end.Seq, nil // a higher number: the block was pruned
}

// indexPrefix returns the prefix of the index's subjects. It contains the creation time
// of the stream, so a new stream of the same name has a new index.
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

// readIndexPrefix requests the prefix, and the number of the oldest message.
func (b *Backend) readIndexPrefix(ctx context.Context) (prefix string, oldest uint64, err error) {
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return "", 0, failed("read the state of the stream", err)
	}
	return b.names.indexSubject + strconv.FormatInt(info.Created.UnixNano(), 10) + ".", info.State.FirstSeq, nil
}

func nodeSubject(prefix string, level int, k uint64) string {
	return prefix + strconv.Itoa(level) + "." + strconv.FormatUint(k, 10)
}

// A lookup finds the first or last blocks of a query in a range of the stream through
// the index. It reads the stream if the index does not list them.
type lookup struct {
	b       *Backend
	q       chaingql.BlocksQuery
	prefix  string   // of the index's subjects
	left    seqRange // not searched yet; empty if the page is complete or the range is exhausted
	forward bool     // finds the first blocks, not the last ones
	end     *entry   // the highest end of the nodes read
}

// lookUp returns up to n blocks, and the rest of the range, which it did not search.
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
	if is, err := b.matchesStream(ctx, x.end); err != nil || !is {
		b.nodes.forget("")
		return nil, in, err
	}
	if page, err = x.present(ctx, page); err != nil || len(page) < n {
		return page, x.left, err
	}
	if x.forward {
		return page[:n], seqRange{}, nil
	}
	return page[len(page)-n:], seqRange{}, nil
}

// A seqRange is the messages of the stream with numbers in [from, end).
type seqRange struct{ from, end uint64 }

func rangeOf(level int, k uint64) seqRange {
	return seqRange{k*width(level) + 1, (k+1)*width(level) + 1}
}

func (s seqRange) in(other seqRange) bool { return s.from >= other.from && s.end <= other.end }

// step searches one part of x.left, at its beginning or its end: the largest for which a
// node lists the blocks. It returns false if the index does not cover it.
func (x *lookup) step(ctx context.Context) (part seqRange, got []stored, found bool, err error) {
	b, left := x.b, x.left
	edge := left.end - 2 // number of the message at the edge, counted from 0
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
		if n.End != nil && (x.end == nil || n.End.Seq > x.end.Seq) {
			x.end = n.End
		}
		if blocks, ok := n.matching(x.q); ok {
			part = seqRange{max(part.from, left.from), min(part.end, left.end)}
			return part, part.filter(blocks), true, nil
		}
	}
	if !found { // the index ends shortly before the stream does
		newest, any, err := b.newest(ctx, b.names.all())
		if err != nil || !any || newest.seq > part.end+4*leafSize {
			return part, nil, false, err
		}
	}
	part = seqRange{max(part.from, left.from), min(part.end, left.end)}
	blocks, err := b.blocksIn(ctx, part)
	return part, matching(blocks, x.q), err == nil, err
}

// blocksIn reads the blocks of a range that is at most leafSize long. It also reads the
// messages before, which show which messages of the range are blocks.
func (b *Backend) blocksIn(ctx context.Context, s seqRange) ([]stored, error) {
	blocks, err := b.chain(ctx, nil, s.from-min(s.from-1, leafSize), s.end, 2*leafSize)
	return s.filter(blocks), err
}

// filter returns the blocks that are in the range. It changes the slice.
func (s seqRange) filter(blocks []stored) []stored {
	return slices.DeleteFunc(blocks, func(b stored) bool { return b.seq < s.from || b.seq >= s.end })
}

// present returns the blocks of page that are still in the stream, and errReplaced if
// they may be of another stream.
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

// A nodeCache contains nodes of the index that were read.
type nodeCache struct {
	mu            sync.Mutex
	subjectPrefix string // prefix of their subjects, "" if unknown
	known         map[string]*node
	sizes         map[string]int
	size          int
}

// nodeCacheBytes is the maximum size of the cached nodes, as JSON.
const nodeCacheBytes = 8 << 20

func (x *nodeCache) prefix() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.subjectPrefix
}

func (x *nodeCache) get(subject string) (*node, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, known := x.known[subject]
	return n, known
}

func (x *nodeCache) put(subject string, n *node, size int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.known[subject]; known || !strings.HasPrefix(subject, x.subjectPrefix) {
		return
	}
	x.known[subject], x.sizes[subject], x.size = n, size, x.size+size
	for other := range x.known { // evicts nodes in random order
		if x.size <= nodeCacheBytes {
			break
		}
		x.size -= x.sizes[other]
		delete(x.known, other)
		delete(x.sizes, other)
	}
}

// forget drops all nodes and sets the prefix of further ones.
func (x *nodeCache) forget(prefix string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.subjectPrefix, x.known, x.sizes, x.size = prefix, make(map[string]*node), make(map[string]int), 0
}

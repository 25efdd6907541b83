package natschain

import (
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

// The index of a chain tells which blocks of each shard are in a stretch of the
// stream, so that a page of a shard with few blocks needs no search by subject:
// servers count what matches in the rest of the stream for that. It is a tree
// in a stream of its own, <chain>_index:
//
//	level 2  |                 0                 |   leaf << 6 messages each
//	level 1  |   0   |   1   |  ...  |     7     |   leaf << 3
//	level 0  |0|1|...|8|...                      |   leaf
//
// Node k of a level is about the messages from k times its width on. It has the
// blocks of each shard that has at most mostListed there, and the names of the
// other shards. A [Writer] stores a node when a block follows its stretch.
// Messages do not change, so nodes do not either: two Writers store the same.
// What has no node is read from the stream, or searched by subject.
const (
	leaf       = 256 // messages of a node of level 0
	fanBits    = 3   // a node is about fan of the level below
	fan        = 1 << fanBits
	levels     = 12 // of 1<<41 messages
	mostListed = 64
	nodeBytes  = 256 << 10 // a larger node lists fewer blocks
	mostSteps  = 200       // of a lookup: chains with thousands of shards may need more
)

// width is how many messages a node of a level is about.
func width(level int) uint64 { return leaf << (fanBits * level) }

// A node is one of the index. Its shards are named <workchain>.<shard in 16 hex digits>.
type node struct {
	Blocks map[string][]entry `json:"blocks"`         // all that a shard has there, ascending
	Many   []string           `json:"many,omitempty"` // shards with more, ascending
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

// matching returns the blocks of the node that a query selects, and false if it
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

// only is a query for one shard, by its name in a node.
func only(shard string) (q chaingql.BlocksQuery, ok bool) {
	w, s, err := shardOf(shard)
	return chaingql.BlocksQuery{Workchain: &w, Shard: &s}, err == nil
}

// selects reports whether a query selects blocks of a shard.
func selects(q, shard chaingql.BlocksQuery) bool {
	return (q.Workchain == nil || *q.Workchain == *shard.Workchain) && (q.Shard == nil || *q.Shard == *shard.Shard)
}

// node returns one of the index, if it is there.
func (b *Backend) node(ctx context.Context, prefix string, level int, k uint64) (*node, bool, error) {
	subject := nodeSubject(prefix, level, k)
	if n, known := b.nodes.get(subject); known {
		return n, true, nil
	}
	f, some, err := b.get(ctx, b.names.index, wanted{Last: subject, NoHead: true})
	switch {
	case refused(err, streamNotFound): // a chain without an index
		return nil, false, nil
	case err != nil || !some:
		return nil, false, failed("read the index", err)
	}
	n := &node{}
	if err := json.Unmarshal(f.Message.Data, n); err != nil {
		return nil, false, nil // as if it were not there
	}
	b.nodes.put(subject, n, len(f.Message.Data))
	return n, true, nil
}

// indexed is how the subjects of the index begin. When the stream was made is a
// part of it: another stream of that name has another index.
func (b *Backend) indexed(ctx context.Context) (string, error) {
	if prefix := b.nodes.prefix(); prefix != "" {
		return prefix, nil
	}
	prefix, _, err := b.indexNow(ctx)
	if err == nil {
		b.nodes.forget(prefix)
	}
	return prefix, err
}

// indexNow asks for it, and for the number of the oldest message that is kept.
func (b *Backend) indexNow(ctx context.Context) (prefix string, oldest uint64, err error) {
	info, err := b.info(ctx, b.names.stream)
	if err != nil {
		return "", 0, failed("look at the stream", err)
	}
	return b.names.nodes + strconv.FormatInt(info.Created.UnixNano(), 10) + ".", info.State.FirstSeq, nil
}

func nodeSubject(prefix string, level int, k uint64) string {
	return prefix + strconv.Itoa(level) + "." + strconv.FormatUint(k, 10)
}

// A lookup finds the last blocks that a query selects in a part of the stream, or
// the first ones, with the index. It reads the stream where the index does not
// list them.
type lookup struct {
	b       *Backend
	q       chaingql.BlocksQuery
	prefix  string  // of the index's subjects
	left    stretch // where it has not looked: nothing when it found enough, or all
	forward bool    // the first blocks
}

// lookUp returns up to n blocks, and what is left of the part.
func (b *Backend) lookUp(
	ctx context.Context, q chaingql.BlocksQuery, in stretch, n int,
) (page []stored, left stretch, err error) {
	x := lookup{b: b, q: q, left: in, forward: q.First > 0}
	if x.prefix, err = b.indexed(ctx); err != nil {
		return nil, in, err
	}
	for steps := 0; len(page) < n && x.left.from < x.left.end && steps < mostSteps; steps++ {
		part, got, some, err := x.step(ctx)
		if err != nil {
			return nil, in, err
		}
		if !some {
			break
		}
		if x.forward {
			page, x.left.from = append(page, got...), part.end
		} else {
			page, x.left.end = append(got, page...), part.from
		}
	}
	if page, err = x.present(ctx, page); err != nil || len(page) < n {
		return page, x.left, err
	}
	if x.forward {
		return page[:n], stretch{}, nil
	}
	return page[len(page)-n:], stretch{}, nil
}

// A stretch is a part of the stream: the messages from a place to short of another.
type stretch struct{ from, end uint64 }

func stretchOf(level int, k uint64) stretch {
	return stretch{k*width(level) + 1, (k+1)*width(level) + 1}
}

func (s stretch) in(other stretch) bool { return s.from >= other.from && s.end <= other.end }

// step looks into one part of what is left, at its end or at its beginning: the
// largest that a node lists. It returns false if the index does not reach there.
func (x *lookup) step(ctx context.Context) (part stretch, got []stored, some bool, err error) {
	b, left := x.b, x.left
	edge := left.end - 2 // the message at the edge, counted from 0
	if x.forward {
		edge = left.from - 1
	}
	var n *node
	for level := levels - 1; level >= 0; level-- {
		part = stretchOf(level, edge/width(level))
		if level > 0 && !part.in(left) {
			continue
		}
		if n, some, err = b.node(ctx, x.prefix, level, edge/width(level)); err != nil {
			return part, nil, false, err
		}
		if !some {
			continue
		}
		if blocks, ok := n.matching(x.q); ok {
			part = stretch{max(part.from, left.from), min(part.end, left.end)}
			return part, part.of(blocks), true, nil
		}
	}
	if !some { // the index ends a little before the stream does
		newest, any, err := b.newest(ctx, b.names.all())
		if err != nil || !any || newest.seq > part.end+4*leaf {
			return part, nil, false, err
		}
	}
	part = stretch{max(part.from, left.from), min(part.end, left.end)}
	blocks, err := b.blocksIn(ctx, part)
	return part, matching(blocks, x.q), err == nil, err
}

// blocksIn reads a part of the stream that is no longer than a leaf. The messages
// before it show which of its own are blocks.
func (b *Backend) blocksIn(ctx context.Context, s stretch) ([]stored, error) {
	blocks, err := b.chain(ctx, nil, s.from-min(s.from-1, leaf), s.end, 2*leaf)
	return s.of(blocks), err
}

// of returns those of some blocks that are in a part of the stream.
func (s stretch) of(blocks []stored) []stored {
	return slices.DeleteFunc(blocks, func(b stored) bool { return b.seq < s.from || b.seq >= s.end })
}

// present returns those of some blocks that are still in the stream, and an error
// if they may be another stream's.
func (x *lookup) present(ctx context.Context, page []stored) ([]stored, error) {
	prefix, oldest, err := x.b.indexNow(ctx)
	switch {
	case err != nil:
		return nil, err
	case prefix != x.prefix:
		return nil, errReplaced
	}
	return slices.DeleteFunc(page, func(s stored) bool { return s.seq < oldest }), nil
}

// nodes are those of the index that were read, so that pages of one part of the
// chain cost one read of it.
type nodes struct {
	mu    sync.Mutex
	of    string // how their subjects begin, "" if that is not known
	known map[string]*node
	sizes map[string]int
	size  int
}

// mostNodes is how many bytes of nodes are kept, as they are stored.
const mostNodes = 8 << 20

func (x *nodes) prefix() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.of
}

func (x *nodes) get(subject string) (*node, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, known := x.known[subject]
	return n, known
}

func (x *nodes) put(subject string, n *node, size int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, known := x.known[subject]; known || !strings.HasPrefix(subject, x.of) {
		return
	}
	x.known[subject], x.sizes[subject], x.size = n, size, x.size+size
	for other := range x.known { // any
		if x.size <= mostNodes {
			break
		}
		x.size -= x.sizes[other]
		delete(x.known, other)
		delete(x.sizes, other)
	}
}

// forget drops all nodes, and begins with those of a stream.
func (x *nodes) forget(prefix string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.of, x.known, x.sizes, x.size = prefix, make(map[string]*node), make(map[string]int), 0
}

package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// An indexer is the part of a Writer that stores the index. Its fields belong to
// the holder of the Writer's turn.
type indexer struct {
	next   uint64    // the leaf to be stored
	known  bool      // next is known
	recent []stored  // the newest blocks, without a gap, from that leaf on
	again  time.Time // before that it is not tried, after an error
}

// appended notes blocks that were stored after those that it knows.
func (x *indexer) appended(blocks ...stored) {
	x.recent = append(x.recent, blocks...)
}

// restart has it look where the index ends, as the stream may have changed.
func (x *indexer) restart() { x.next, x.known, x.recent = 0, false, nil }

const (
	leavesAtOnce  = 8 // that one Append stores of an index that lags, in addition to its own
	indexAgain    = 30 * time.Second
	indexDeadline = ackWait
)

// index stores the nodes that the newest blocks complete, and some more of an
// index that lags. Pages do without the index, so an error is only logged.
func (w *Writer) index(ctx context.Context, appended int) {
	if !w.indexing || w.tail == nil || time.Now().Before(w.indexer.again) {
		w.indexer.recent = nil
		return
	}
	err := w.extend(ctx, leavesAtOnce+appended/leaf)
	if err != nil && ctx.Err() == nil {
		w.indexer.restart()
		w.indexer.again = time.Now().Add(indexAgain)
		w.b.opts.Logger.WarnContext(ctx, "index of blocks not extended", "stream", w.b.names.index, "error", w.b.denied(err))
	}
}

func (w *Writer) extend(ctx context.Context, leaves int) error {
	x := &w.indexer
	if (x.next+1)*leaf >= w.tail.seq {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, indexDeadline)
	defer cancel()
	prefix, err := w.b.indexed(ctx)
	if err != nil {
		return err
	}
	if !x.known {
		if x.next, err = w.indexEnd(ctx, prefix); err != nil {
			return err
		}
		x.known = true
	}
	for ; leaves > 0 && (x.next+1)*leaf < w.tail.seq; leaves-- {
		blocks, err := w.leafBlocks(ctx, stretchOf(0, x.next))
		if err == nil {
			err = w.storeNode(ctx, prefix, 0, x.next, nodeOf(blocks))
		}
		if err != nil {
			return err
		}
		x.next++
		x.recent = slices.DeleteFunc(x.recent, func(s stored) bool { return s.seq <= x.next*leaf })
	}
	if len(x.recent) > 0 && x.recent[0].seq > x.next*leaf+1 { // it is read from the stream
		x.recent = nil
	}
	return nil
}

// indexEnd is the first leaf that is not stored.
func (w *Writer) indexEnd(ctx context.Context, prefix string) (uint64, error) {
	_, first, some, err := w.b.at(ctx, 1)
	if err != nil || !some {
		return 0, err
	}
	next := (first - 1) / leaf
	f, some, err := w.b.get(ctx, w.b.names.index, wanted{Last: prefix + "0.*", NoHead: true})
	if err != nil {
		return 0, err
	}
	if some {
		k, err := nodeNumber(f.Message.Subject)
		if err != nil {
			return 0, err
		}
		next = max(next, k+1)
	}
	// What a stream lost with a server's power may have been stored again, and differ.
	return min(next, (w.tail.seq-1)/leaf), nil
}

func nodeNumber(subject string) (uint64, error) {
	return strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
}

// leafBlocks returns the blocks of a leaf.
func (w *Writer) leafBlocks(ctx context.Context, s stretch) ([]stored, error) {
	if recent := w.indexer.recent; len(recent) > 0 && recent[0].seq <= s.from {
		return s.of(slices.Clone(recent)), nil
	}
	return w.b.blocksIn(ctx, s)
}

func nodeOf(blocks []stored) *node {
	n := &node{Blocks: map[string][]entry{}}
	for i := range blocks {
		shard := shardName(&blocks[i].block)
		n.Blocks[shard] = append(n.Blocks[shard], entryOf(&blocks[i]))
	}
	n.list(mostListed)
	return n
}

// list has a node list no more than some blocks of each shard.
func (n *node) list(most int) {
	for shard, entries := range n.Blocks {
		if len(entries) > most {
			n.Many = append(n.Many, shard)
		}
	}
	slices.Sort(n.Many)
	n.Many = slices.Compact(n.Many)
	for _, shard := range n.Many {
		delete(n.Blocks, shard)
	}
}

// storeNode stores a node, and the ones above it that it completes.
func (w *Writer) storeNode(ctx context.Context, prefix string, level int, k uint64, n *node) error {
	payload, err := json.Marshal(n)
	for most := mostListed; err == nil && len(payload) > nodeBytes; {
		if most == 0 {
			return nil // reads look at the nodes below
		}
		most /= 2
		n.list(most)
		payload, err = json.Marshal(n)
	}
	if err == nil {
		_, err = w.b.js.Publish(ctx, nodeSubject(prefix, level, k), payload, jetstream.WithRetryAttempts(0))
	}
	if err != nil || (k+1)%fan != 0 || level+1 == levels {
		return err
	}
	above := &node{Blocks: map[string][]entry{}}
	for child := k + 1 - fan; child <= k; child++ {
		below, some, err := w.b.node(ctx, prefix, level, child)
		if err != nil || !some {
			return err
		}
		for shard, entries := range below.Blocks {
			above.Blocks[shard] = append(above.Blocks[shard], entries...)
		}
		above.Many = append(above.Many, below.Many...)
	}
	above.list(mostListed)
	return w.storeNode(ctx, prefix, level+1, k/fan, above)
}

// openIndex reports whether the Writer may store an index.
func (b *Backend) openIndex(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout/attempts)
	defer cancel()
	_, err := b.info(ctx, b.names.index)
	if err == nil {
		err = b.mayWrite(ctx, b.names.nodes+"0")
	}
	if err != nil {
		b.opts.Logger.WarnContext(ctx, "chain has no index: pages of workchains and shards with few blocks are expensive",
			"stream", b.names.index, "error", err)
	}
	return err == nil
}

// prepareIndex makes the stream of the index. A chain without one is served too.
func (b *Backend) prepareIndex(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	_, err := b.info(ctx, b.names.index)
	if !errors.Is(err, jetstream.ErrStreamNotFound) || b.opts.Create == nil {
		return
	}
	s := b.opts.Create
	_, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: b.names.index, Subjects: []string{b.names.nodes + ">"}, Description: "index of blocks, by chaingql",
		Replicas: s.Replicas, MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, Storage: s.storage(), MaxMsgsPerSubject: 1,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		b.opts.Logger.WarnContext(ctx, "the index of blocks could not be made", "stream", b.names.index,
			"error", b.denied(err))
	}
}

// pruneIndex drops the nodes whose blocks are gone. They do no harm, so an error
// is only logged.
func (w *Writer) pruneIndex(ctx context.Context, oldest uint64) {
	if !w.indexing || oldest == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, indexDeadline)
	defer cancel()
	err := func() error {
		prefix, err := w.b.indexed(ctx)
		if err != nil {
			return err
		}
		oldestLeaf := (oldest - 1) / leaf
		f, some, err := w.b.get(ctx, w.b.names.index, wanted{Last: nodeSubject(prefix, 0, oldestLeaf), NoHead: true})
		if err == nil && !some { // it may be the next to be stored
			f, some, err = w.b.get(ctx, w.b.names.index, wanted{Last: prefix + "0.*", NoHead: true})
		}
		if err != nil || !some {
			return err
		}
		if k, err := nodeNumber(f.Message.Subject); err != nil || k > oldestLeaf {
			return err
		}
		s, err := w.b.js.Stream(ctx, w.b.names.index)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(f.Message.Seq))
	}()
	if err != nil {
		w.b.opts.Logger.WarnContext(ctx, "index of blocks not pruned", "stream", w.b.names.index, "error", w.b.denied(err))
	}
}

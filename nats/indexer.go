package natschain

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// An indexer holds the state with which a Writer extends the block index. The Writer's sem
// guards it.
type indexer struct {
	blocks  progress  // of the block index
	hashes  progress  // of the hash index
	recent  []stored  // the newest blocks, from the beginning of the next leaf of the block index on, without a gap
	retryAt time.Time // earliest time of the next attempt after an error
}

// A progress is the number of the next leaf of an index to store.
type progress struct {
	next  uint64
	known bool // whether next is certain: if not, extend looks up the end of the index before it stores a leaf
}

// appended adds blocks that were stored directly after the recent ones.
func (x *indexer) appended(blocks ...stored) {
	x.recent = append(x.recent, blocks...)
}

// restart makes the next call of extend look up the end of the index.
func (x *indexer) restart() { x.blocks, x.hashes, x.recent = progress{}, progress{}, nil }

// moved records that the stream ends at end, which is not where this Writer expected: another Writer has stored blocks
// and perhaps leaves, or the stream has lost messages. Therefore extend looks up the end of the index before it stores
// the next leaf.
func (x *indexer) moved(end uint64) {
	x.recent, x.blocks.known, x.hashes.known = nil, false, false
	if end < max(x.blocks.next, x.hashes.next)*leafSize { // the stream lost blocks
		x.restart()
	}
}

const (
	leavesAtOnce    = 8 // maximum number of missing leaves that one Append adds, in addition to its own
	indexRetryDelay = 30 * time.Second
	indexDeadline   = ackWait
	maxIndexDelay   = indexDeadline / 8 // time after which Append adds no more missing leaves to an index
)

// index stores the nodes that the appended blocks complete. If the index lags, it also
// stores some of the missing nodes. Errors are only logged, because pages can be read
// without the index.
func (w *Writer) index(ctx context.Context, appended int) {
	if !w.indexing || w.tail == nil || time.Now().Before(w.indexer.retryAt) {
		w.indexer.recent = nil
		return
	}
	since := w.b.nc.LastError()
	err := w.extend(ctx, leavesAtOnce+appended/leafSize)
	if err != nil && ctx.Err() == nil {
		w.indexer.restart()
		w.indexer.retryAt = time.Now().Add(indexRetryDelay)
		w.b.opts.Logger.WarnContext(ctx, "extending the block index failed; retrying later",
			slog.String("stream", w.b.names.index), slog.Any("error", w.b.permissionError(since, err)))
	}
}

func (w *Writer) extend(ctx context.Context, leaves int) error {
	x := &w.indexer
	if (min(x.blocks.next, x.hashes.next)+1)*leafSize >= w.tail.seq {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, indexDeadline)
	defer cancel()
	prefix, err := w.b.indexPrefix(ctx)
	if err != nil {
		return err
	}
	err = w.extendBy(ctx, prefix, &x.blocks, leaves, func(leaf uint64, blocks []stored, end position) error {
		return w.storeNode(ctx, prefix, 0, leaf, nodeOf(blocks, end))
	})
	if err == nil {
		err = w.extendBy(ctx, hashPrefix(prefix, 0), &x.hashes, leaves,
			func(leaf uint64, blocks []stored, end position) error {
				return w.storeHashes(ctx, prefix, leaf, blocks, end)
			})
	}
	x.recent = slices.DeleteFunc(x.recent, func(s stored) bool { return s.seq <= x.blocks.next*leafSize })
	if len(x.recent) > 0 && x.recent[0].seq > x.blocks.next*leafSize+1 { // a gap: the leaf is read from the stream
		x.recent = nil
	}
	return err
}

// extendBy calls store for up to the given number of leaves that an index lacks. The
// subjects of these leaves have the given prefix.
func (w *Writer) extendBy(
	ctx context.Context, prefix string, x *progress, leaves int,
	store func(leaf uint64, blocks []stored, end position) error,
) (err error) {
	if !x.known {
		if x.next, err = w.indexEnd(ctx, prefix); err != nil {
			return err
		}
		x.known = true
	}
	begun := time.Now()
	for ; leaves > 0 && (x.next+1)*leafSize < w.tail.seq; leaves-- {
		if leaves <= leavesAtOnce && time.Since(begun) > maxIndexDelay {
			break // the next Append continues
		}
		blocks, end, err := w.leaf(ctx, rangeOf(0, x.next))
		if err == nil {
			err = store(x.next, blocks, end)
		}
		if err != nil {
			return err
		}
		x.next++
	}
	return nil
}

// indexEnd returns the number of the first leaf that must be stored. The subjects of the
// leaves have the given prefix.
func (w *Writer) indexEnd(ctx context.Context, prefix string) (uint64, error) {
	_, first, found, err := w.b.messageFrom(ctx, 1)
	if err != nil || !found {
		return 0, err
	}
	next := (first - 1) / leafSize
	f, found, err := w.b.get(ctx, w.b.names.index, getRequest{Last: prefix + "0.*", NoHead: true})
	if err != nil {
		return 0, err
	}
	if found {
		k, err := nodeNumber(f.Message.Subject)
		if err != nil {
			return 0, err
		}
		oldest, from := next, next
		next = max(next, k+1)
		// Other blocks may have replaced blocks that the stream lost. Leaves that do not match the
		// stream are therefore stored again. The last leaf that matches is stored again too, because
		// its Writer may have stopped before it stored the nodes above that leaf.
		next = min(next, (w.tail.seq-1)/leafSize)
		// A binary search, because an earlier version may have stored all leaves. Most often, the newest one matches.
		for k := next - 1; from < next; k = from + (next-from)/2 {
			n, right, err := w.b.node(ctx, prefix, 0, k)
			if err == nil && right {
				right, err = w.b.matchesStream(ctx, n.End)
			}
			switch {
			case err != nil:
				return 0, err
			case right:
				from = k + 1
			default:
				w.b.nodes.forget("")
				next = k
			}
		}
		next = max(oldest, next-min(next, 1))
	}
	return min(next, (w.tail.seq-1)/leafSize), nil
}

func nodeNumber(subject string) (uint64, error) {
	return strconv.ParseUint(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
}

// leaf returns the blocks in the range s of a leaf, and its End. It reads the blocks from the stream
// only if they are not among the recent blocks.
func (w *Writer) leaf(ctx context.Context, s seqRange) (blocks []stored, end position, err error) {
	after, found, err := w.b.block(ctx, getRequest{Seq: s.end, Next: w.b.names.all()})
	if err == nil && !found {
		err = errMissing
	}
	if err != nil {
		return nil, position{}, err
	}
	if recent := w.indexer.recent; len(recent) > 0 && recent[0].seq <= s.from && recent[len(recent)-1].seq >= s.end {
		blocks = s.filter(slices.Clone(recent))
	} else {
		blocks, err = w.b.blocksIn(ctx, s)
	}
	return blocks, after.position(), err
}

func nodeOf(blocks []stored, end position) *node {
	n := &node{Blocks: map[string][]entry{}, End: end}
	for i := range blocks {
		shard := shardName(&blocks[i].block)
		n.Blocks[shard] = append(n.Blocks[shard], entryOf(&blocks[i]))
	}
	n.list(maxListed)
	return n
}

// list limits the number of blocks that n lists per shard. Shards that have more than
// limit blocks are moved to n.Many.
func (n *node) list(limit int) {
	for shard, entries := range n.Blocks {
		if len(entries) > limit {
			n.Many = append(n.Many, shard)
		}
	}
	slices.Sort(n.Many)
	n.Many = slices.Compact(n.Many)
	for _, shard := range n.Many {
		delete(n.Blocks, shard)
	}
}

// storeNode stores n as node k of a level. If n is the last child of the node above it,
// storeNode then builds and stores that node, too.
func (w *Writer) storeNode(ctx context.Context, prefix string, level int, k uint64, n *node) error {
	payload, err := json.Marshal(n)
	for limit := maxListed; err == nil && len(payload) > nodeBytes; {
		if limit == 0 {
			return nil // too many shards for one node: reads use its children
		}
		limit /= 2
		n.list(limit)
		payload, err = json.Marshal(n)
	}
	if err == nil {
		n.subject = nodeSubject(prefix, level, k)
		err = w.sendNodes(ctx, []nodeMessage{{n, payload}})
	}
	if err != nil || (k+1)%fan != 0 || level+1 == levels {
		return err
	}
	above := &node{Blocks: map[string][]entry{}}
	for child := k + 1 - fan; child <= k; child++ {
		below, found, err := w.b.node(ctx, prefix, level, child)
		if err != nil || !found {
			return err
		}
		for shard, entries := range below.Blocks {
			above.Blocks[shard] = append(above.Blocks[shard], entries...)
		}
		above.Many = append(above.Many, below.Many...)
		above.End = below.End
	}
	above.list(maxListed)
	return w.storeNode(ctx, prefix, level+1, k/fan, above)
}

// openIndex reports whether the index stream exists and this Backend may write to it. If
// not, it logs a warning. If the stream is not available now, openIndex returns true, so that
// the Writer tries later.
func (b *Backend) openIndex(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout/attempts)
	defer cancel()
	_, err := b.info(ctx, b.names.index)
	if err == nil {
		err = b.checkWrite(ctx, b.names.index, b.names.indexSubject+"0")
	}
	if err != nil && b.retryable(err) {
		b.opts.Logger.WarnContext(ctx, "the block index is not available; the Writer extends it later",
			slog.String("stream", b.names.index), slog.Any("error", err))
		return true
	}
	if err != nil {
		b.opts.Logger.WarnContext(ctx, "the Writer does not extend the block index: "+
			"old blocks are not found by hash, and pages of rare workchains and shards are slow",
			slog.String("stream", b.names.index), slog.Any("error", err))
	}
	return err == nil
}

// prepareIndex creates the index stream if it does not exist and Options.Create is set.
// Errors are only logged, because a chain can be served without an index.
func (b *Backend) prepareIndex(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	_, err := b.info(ctx, b.names.index)
	if !errors.Is(err, jetstream.ErrStreamNotFound) || b.opts.Create == nil {
		return
	}
	since := b.nc.LastError()
	s := b.opts.Create
	_, err = b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: b.names.index, Description: "index of blocks, by chaingql",
		Subjects: []string{b.names.indexSubject + ">"}, MaxMsgsPerSubject: 1,
		Replicas: s.Replicas, MaxBytes: s.MaxBytes, MaxAge: s.MaxAge, Storage: s.storage(),
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		b.opts.Logger.WarnContext(ctx, "creating the index stream failed: "+
			"old blocks are not found by hash, and pages of rare workchains and shards are slow",
			slog.String("stream", b.names.index), slog.Any("error", b.permissionError(since, err)))
	}
}

// pruneIndex deletes the index nodes of pruned blocks. The argument oldest is the sequence
// number of the oldest remaining block. Errors are only logged, because these nodes do no
// harm.
func (w *Writer) pruneIndex(ctx context.Context, oldest uint64) {
	if !w.indexing || oldest == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, indexDeadline)
	defer cancel()
	since := w.b.nc.LastError()
	err := func() error {
		prefix, err := w.b.indexPrefix(ctx)
		if err != nil {
			return err
		}
		oldestLeaf := (oldest - 1) / leafSize
		subject := nodeSubject(prefix, 0, oldestLeaf)
		f, found, err := w.b.get(ctx, w.b.names.index, getRequest{Last: subject, NoHead: true})
		if err == nil && !found { // the leaf may not be stored yet
			f, found, err = w.b.get(ctx, w.b.names.index, getRequest{Last: prefix + "0.*", NoHead: true})
		}
		if err != nil || !found {
			return err
		}
		if k, err := nodeNumber(f.Message.Subject); err != nil || k > oldestLeaf || f.Message.Seq <= 1 { // see Prune
			return err
		}
		s, err := w.b.js.Stream(ctx, w.b.names.index)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(f.Message.Seq))
	}()
	if err != nil {
		w.b.opts.Logger.WarnContext(ctx, "pruning the block index failed: nodes of pruned blocks remain",
			slog.String("stream", w.b.names.index), slog.Any("error", w.b.permissionError(since, err)))
	}
}

package chaingql

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"sort"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
)

// errLookup is the error of a field that needs a block outside the window, if the Backend cannot find that block.
var errLookup = &plan.Error{Message: "The service can find single blocks only among the newest ones.", Code: codeLookup}

// A lookup identifies a block: by its hash, by its number in a shard, or as the first masterchain block that was
// generated at a time or later.
type lookup struct {
	by     lookupBy
	hash   Hash
	in     blocklog.Filter // the shard in which number counts
	number int64           // the number, or the time in seconds since 1970
}

type lookupBy uint8

const (
	byHash lookupBy = iota
	bySeqNo
	byTime
)

// A sharedLookup identifies a Backend call; lookups with equal keys share it. seen is the cursor of the newest block
// that clients have seen, as in [pageKey].
type sharedLookup struct {
	lookup
	seen string
}

// matches reports whether b may be the block that l identifies.
func (l *lookup) matches(b *Block) bool {
	switch l.by {
	case byHash:
		return b.Hash == l.hash
	case bySeqNo:
		return b.Workchain == l.in.Workchain && b.Shard == l.in.Shard && int64(b.SeqNo) == l.number
	}
	return b.Workchain == masterchain && b.Time.Unix() >= l.number
}

// The numbers of blocks in the window that are scanned for a hash, beginning with the newest. A window can be so long
// that a call of the Backend is cheaper. Without an index, a query can have 50 scans.
const (
	scannedWithIndex    = 4096
	scannedWithoutIndex = 16_384
)

// within returns the block in the window that l identifies, or nil. indexed reports whether the Backend can find it.
func (l *lookup) within(w *blocklog.Window[Block], indexed bool) *Block {
	switch l.by {
	case byHash:
		most := scannedWithoutIndex
		if indexed {
			most = scannedWithIndex
		}
		runtime.Gosched() // the scans of one query may take milliseconds, and others wait for the processor
		blocks := w.Blocks[max(0, len(w.Blocks)-most):]
		for i := len(blocks) - 1; i >= 0; i-- {
			if b := &blocks[i]; b.Hash == l.hash {
				return b
			}
		}
	case bySeqNo:
		blocks := w.Select(l.in)
		i := sort.Search(blocks.Len(), func(i int) bool { return int64(blocks.At(i).SeqNo) >= l.number })
		if i < blocks.Len() && int64(blocks.At(i).SeqNo) == l.number {
			return blocks.At(i)
		}
	}
	return nil
}

// find returns the block that l identifies, or nil if there is none. It searches the window before it calls the
// Backend. The caller knows that the block, if it exists, is after the given cursor. So if the window begins at that
// cursor or before it, find needs no call.
func (r *resolvers) find(ctx context.Context, c *call, l lookup, after Cursor) (*Block, error) {
	ch := r.chainOf(c)
	w := ch.window()
	get := r.lookupCall(l)
	switch b := l.within(&w, get != nil); {
	case b != nil:
		return b, nil
	case w.Live && string(after) >= w.After &&
		(l.by == bySeqNo || l.by == byHash && get == nil && len(w.Blocks) <= scannedWithoutIndex):
		return nil, nil
	case get == nil:
		return nil, errLookup
	}
	b, err := r.findStored(ctx, c, ch, sharedLookup{l, w.Reached}, get)
	if errors.Is(err, errLookup) { // the Backend has no complete index
		if b = l.within(&w, false); b != nil {
			return b, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if b != nil {
		ch.blocks.Observed(string(b.Cursor))
	} else {
		c.stored = true
	}
	return b, nil
}

// findStored finds a block with a call of the Backend. Concurrent identical calls are one.
func (r *resolvers) findStored(
	ctx context.Context, c *call, ch *chain, l sharedLookup, get func(context.Context) (Block, error),
) (b *Block, err error) {
	if err := r.wait(ctx, c); err != nil {
		return nil, err
	}
	defer r.waited(c, &err)
	b, err = ch.lookups.Do(ctx, l, r.slot(c, r.slots.lookups), func(shared context.Context) (*Block, error) {
		return r.lookUp(r.reading(shared, ctx), ch, l.lookup, get)
	})
	return b, r.sharedError(ctx, err)
}

// lookupCall returns the call of the Backend that finds the block, or nil if the Backend has none.
func (r *resolvers) lookupCall(l lookup) func(context.Context) (Block, error) {
	switch {
	case l.by == byHash && r.hashes != nil:
		return func(ctx context.Context) (Block, error) { return r.hashes.BlockByHash(ctx, l.hash) }
	case l.by == bySeqNo && r.numbers != nil:
		return func(ctx context.Context) (Block, error) {
			return r.numbers.BlockBySeqNo(ctx, l.in.Workchain, l.in.Shard, uint32(l.number))
		}
	case l.by == byTime && r.times != nil:
		return func(ctx context.Context) (Block, error) { return r.times.MasterBlockByTime(ctx, unixTime(l.number)) }
	}
	return nil
}

// lookUp makes a call of the Backend and checks its result.
func (r *resolvers) lookUp(
	ctx context.Context, c *chain, l lookup, get func(context.Context) (Block, error),
) (*Block, error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	b, err := get(ctx)
	err = r.chains.verify(c, err, b)
	if err == nil || errors.Is(err, ErrBlockNotFound) {
		c.blocks.Retry()
	}
	switch {
	case errors.Is(err, ErrBlockNotFound):
		return nil, nil
	case errors.Is(err, ErrLookupNotSupported):
		return nil, errLookup
	case err == nil && !l.matches(&b):
		err = fmt.Errorf("chaingql: Backend returned block %d of shard %016x in workchain %d, which was not requested",
			b.SeqNo, b.Shard, b.Workchain)
	}
	if err != nil {
		return nil, r.explain(ctx, err)
	}
	return &b, nil
}

// A blockList is a list of blocks in a response.
type blockList []*Block

func (l blockList) Len() int     { return len(l) }
func (l blockList) At(i int) any { return l[i] }

// found returns a block as the value of a field. A response without the block is not final.
func (c *call) found(b *Block, err error) (any, error) {
	if b == nil {
		c.final = false
		return nil, err
	}
	return b, nil
}

func (r *resolvers) block(ctx context.Context, src any, args plan.Args) (any, error) {
	hash, err := parseHash(args[0].(string))
	if err != nil {
		return nil, err
	}
	c := callOf(src)
	return c.found(r.find(ctx, c, lookup{by: byHash, hash: hash}, ""))
}

// These are the indexes of the arguments of block_by_seq_no in the schema's table.
const (
	argNumberWorkchain = iota
	argNumberShard
	argNumberSeqNo
	argNumberArchive
	argNumberThread
)

func (r *resolvers) blockBySeqNo(ctx context.Context, src any, args plan.Args) (any, error) {
	text, _ := args[argNumberShard].(string)
	if text == "" {
		text, _ = args[argNumberThread].(string)
	}
	if text == "" {
		return nil, badInput(`"shard" parameter must be defined`)
	}
	shard, err := parseShard(text)
	if err != nil {
		return nil, err
	}
	c := callOf(src)
	n := args[argNumberSeqNo].(float64)
	if n != float64(uint32(n)) { // no block has such a number
		return c.found(nil, nil)
	}
	in := shardOf(int32(args[argNumberWorkchain].(int)), shard)
	return c.found(r.find(ctx, c, lookup{by: bySeqNo, in: in, number: int64(n)}, ""))
}

func parseHash(s string) (h Hash, err error) {
	if len(s) == hex.EncodedLen(len(h)) {
		if _, err := hex.Decode(h[:], []byte(s)); err == nil {
			return h, nil
		}
	}
	return h, badInput("Invalid hash: 64 hex digits expected")
}

func lookupCost(plan.Args) plan.Cost { return plan.Cost{Calls: 1, Blocks: 1} }

// onBlockNumber is like onBlock, but for a block that is found by its number. If the chain has an epoch, the block is
// never final, because another chain has another block with this number.
func (r *resolvers) onBlockNumber(plan.Args) any {
	return dependency{all: true, blocks: true, page: r.chains.current().suffix == ""}
}

// onBlock returns the dependency of a single block: nothing once it is found, and otherwise all blocks.
func onBlock(plan.Args) any { return dependency{all: true, blocks: true, page: true} }

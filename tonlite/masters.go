package tonlite

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A master contains the parts of a masterchain block that this package uses.
type master struct {
	id, prev lite.BlockID
	header   header
	tops     []lite.BlockID // the newest block of each shard
}

// errForged is returned if a server names a masterchain block that is not the predecessor of a proven one.
var errForged = errors.New("the server named a forged block:")

var errFork = errors.New("tonlite: a masterchain block conflicts with the known masterchain")

// currentHead returns the newest masterchain block. It queries a server, unless a Follow keeps
// the newest known block up to date.
func (b *Backend) currentHead(ctx context.Context) (lite.BlockID, error) {
	if head, live := b.knownHead(); live {
		return head, nil
	}
	return b.readHead(ctx)
}

// readHead is like currentHead, but always queries a server.
func (b *Backend) readHead(ctx context.Context) (lite.BlockID, error) {
	var lagging atomic.Bool // whether a server lags behind the head
	q := lite.GetMasterchainInfo{}
	err := b.servers.askIn(ctx, b.servers.order(ctx, q), q, func(ctx context.Context, answer lite.Message) error {
		id, err := announced(answer)
		if err != nil {
			return err
		}
		if head, _ := b.knownHead(); id.SeqNo < head.SeqNo {
			lagging.Store(true)
			return errLagging
		}
		return b.advance(ctx, id)
	})
	if b.opts.Unproven && lagging.Load() && ctx.Err() == nil && b.dropHead(ctx) {
		return b.readHead(ctx)
	}
	head, _ := b.knownHead()
	if lagging.Load() && ctx.Err() == nil {
		err = nil // no server has a newer block
	}
	return head, err
}

// announced returns the newest masterchain block that a server announces.
func announced(answer lite.Message) (lite.BlockID, error) {
	info, ok := answer.(lite.MasterchainInfo)
	if !ok || info.Last.Workchain != masterchain || info.Last.Shard != wholeShard {
		return lite.BlockID{}, errAnswer
	}
	return info.Last, nil
}

// Ping queries a server for its newest masterchain block, as [chaingql.Pinger] specifies. It does so
// even if a Follow keeps the newest block up to date, so it shows whether a server answers now.
func (b *Backend) Ping(ctx context.Context) error {
	return b.servers.ask(ctx, lite.GetMasterchainInfo{}, func(answer lite.Message) error {
		if _, ok := answer.(lite.MasterchainInfo); !ok {
			return errAnswer
		}
		return nil
	})
}

// dropHead drops the head and all cached blocks if no server has the head any more, because the
// server that announced it may have invented it. It must be called only if blocks are accepted
// without proof. It reports whether it dropped the head.
func (b *Backend) dropHead(ctx context.Context) bool {
	head, _ := b.knownHead()
	if head.SeqNo == 0 {
		return false
	}
	if _, err := b.header(ctx, head, 0); !errors.Is(err, errMissing) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.head != head {
		return false
	}
	b.head, b.heads, b.oldest, b.gone, b.complete = lite.BlockID{}, nil, 0, 0, 0
	b.servers.head.Store(0)
	b.masters.clear()
	b.steps.clear()
	b.opts.Logger.Warn("newest masterchain block dropped, because no lite server has it; reading the newest again",
		slog.Uint64("seq_no", uint64(head.SeqNo)))
	return true
}

// advance proves a masterchain block and makes it the head. If Options.Unproven is set, advance
// accepts the block without proof. It ignores a block that is older than the head, because the
// server that announced that block only lags.
func (b *Backend) advance(ctx context.Context, id lite.BlockID) error {
	head, _ := b.knownHead()
	if id.SeqNo < head.SeqNo || id == head {
		return nil
	}
	if b.opts.Unproven {
		err := b.acceptUnproven(ctx, id, head)
		if err != nil && b.dropHead(ctx) {
			err = b.acceptUnproven(ctx, id, lite.BlockID{})
		}
		return err
	}
	if id.SeqNo == head.SeqNo {
		return errFork
	}
	if err := b.prover.prove(ctx, id, head); err != nil {
		return err
	}
	b.setHead(id)
	return nil
}

// maxLinks is the maximum number of masterchain blocks that acceptUnproven reads before it moves
// the head to the newest of them. After a long pause, the head therefore moves in several steps.
const maxLinks = 256

// errHead is returned if the newest block that a server announces cannot be read, or if the
// blocks before it do not lead back to the previous head.
var errHead = errors.New("the newest masterchain block cannot be read, or does not lead back to the known one")

// acceptUnproven makes block id the head without proof. The block must be readable and must lead
// back, block by block, to known, the previous head. If there is no previous head, the block only
// has to be readable.
func (b *Backend) acceptUnproven(ctx context.Context, id, known lite.BlockID) error {
	if known.SeqNo == 0 {
		m, err := b.master(ctx, id)
		if err != nil {
			return fmt.Errorf("%w: %v", errHead, err) // not %w: a missing block means that the server lied
		}
		b.masters.put(id.SeqNo, m)
		b.setHead(id)
		return nil
	}
	if known.SeqNo == id.SeqNo {
		return errFork
	}
	for known != id {
		to, name := id.SeqNo, &id
		if to-known.SeqNo > maxLinks {
			to, name = known.SeqNo+maxLinks, nil
		}
		blocks, err := b.readLinked(ctx, known.SeqNo+1, to, name)
		if err == nil && blocks[0].prev != known {
			err = errFork
		}
		if err != nil {
			return fmt.Errorf("%w: %v", errHead, err)
		}
		b.cacheMasters(blocks)
		known = blocks[len(blocks)-1].id
		b.setHead(known)
	}
	return nil
}

// chain returns the masterchain blocks with a seq_no in [from, to], where to must be at most that
// of the head. chain requires a proof of the last block. Each other block must be the predecessor
// that the block after it names. If a server returns another block for a seq_no, chain reads the
// right one by its id.
func (b *Backend) chain(ctx context.Context, from, to uint32) ([]*master, error) {
	blocks, err := b.readLinked(ctx, from, to, nil)
	b.cacheMasters(blocks) // even if others failed, so that the next call needs to read only those
	if err != nil {
		return nil, err
	}
	return blocks, nil
}

func (b *Backend) cacheMasters(blocks []*master) {
	for _, m := range blocks {
		b.masters.put(m.id.SeqNo, m)
	}
}

// readLinked is like chain, but does not cache the blocks. If last is not nil, it is the id of
// the last block. A server that named another block than the proven one for a seq_no lied. If a block cannot be read,
// readLinked returns those after it that the last one leads to, and an error.
func (b *Backend) readLinked(ctx context.Context, from, to uint32, last *lite.BlockID) ([]*master, error) {
	blocks, namers := make([]*master, to-from+1), make([]*server, to-from+1)
	err := parallel(ctx, len(blocks), func(ctx context.Context, i int) (err error) {
		if newest := i == len(blocks)-1; newest && last != nil {
			blocks[i], err = b.master(ctx, *last)
		} else {
			blocks[i], namers[i], err = b.masterBySeqNo(ctx, from+uint32(i), newest)
		}
		return err
	})
	for i := len(blocks) - 1; i >= 0; i-- {
		if i+1 < len(blocks) && blocks[i] != nil && blocks[i].id != blocks[i+1].prev {
			if b.knows(blocks[i].id) {
				return nil, errFork // both were accepted before
			}
			if namers[i] != nil && !b.opts.Unproven { // also if a client leaves, or it could leave again and again
				b.servers.convict(namers[i], fmt.Errorf("%w %v", errForged, blocks[i].id))
			}
			if blocks[i] = nil; err == nil {
				blocks[i], err = b.master(ctx, blocks[i+1].prev)
			}
		}
		if blocks[i] == nil {
			return blocks[i+1:], err
		}
	}
	return blocks, err
}

// masterBySeqNo returns the masterchain block with the given seq_no. If the id of that block is
// not known, masterBySeqNo looks up the block, and returns the server that named the id, too.
func (b *Backend) masterBySeqNo(ctx context.Context, seqNo uint32, proven bool) (m *master, namer *server, err error) {
	if m, ok := b.masters.get(seqNo); ok {
		return m, nil, nil
	}
	if next, ok := b.masters.get(seqNo + 1); ok {
		m, err = b.master(ctx, next.prev)
		return m, nil, err
	}
	if head, ok := b.headAt(seqNo); ok {
		m, err = b.master(ctx, head)
		return m, nil, err
	}
	return b.lookup(ctx, seqNo, false, proven)
}

// lookup asks a server for the id of the masterchain block with the given seq_no and reads that block. If proven is
// set, it requires a proof of the block. If no server proves or sends the block, the id may be invented and shows
// nothing, so lookup asks the next server for the id. If wait is set, a server that lags waits for the block, instead
// of responding that it does not have the block. namer is the server that named the id.
func (b *Backend) lookup(
	ctx context.Context, seqNo uint32, wait, proven bool,
) (m *master, namer *server, err error) {
	var q lite.Message = lite.LookupBlock{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo}
	if wait {
		q = b.servers.after(seqNo, q)
	}
	type result struct {
		m     *master
		namer *server
	}
	var found atomic.Pointer[result]
	err = b.servers.askIn(ctx, b.servers.order(ctx, q), q, func(ctx context.Context, answer lite.Message) error {
		id, err := lookedUp(answer, seqNo)
		if err != nil {
			return err
		}
		if known, ok := b.masters.get(seqNo); ok && known.id == id {
			found.Store(&result{m: known})
			return nil
		}
		if !proven {
			ctx = context.WithValue(ctx, claimedKey{}, true)
		} else if err := b.prove(ctx, id); err != nil {
			return err
		}
		m, err := b.master(ctx, id)
		switch {
		case errors.Is(err, errMissing):
			return fmt.Errorf("%w %v, which is not sent: %w", errUnproven, id, err)
		case err == nil:
			found.Store(&result{m, sender(ctx)})
		}
		return err
	})
	if r := found.Load(); err == nil {
		m, namer = r.m, r.namer
	}
	return m, namer, err
}

func lookedUp(answer lite.Message, seqNo uint32) (lite.BlockID, error) {
	a, ok := answer.(lite.BlockHeader)
	if !ok || a.ID.Workchain != masterchain || a.ID.Shard != wholeShard || a.ID.SeqNo != seqNo {
		return lite.BlockID{}, errAnswer
	}
	return a.ID, nil
}

// master reads the masterchain block with the given id. The id contains a hash, with which master
// verifies the block. Servers that lag wait for the head, because the server that announced it may withhold it.
func (b *Backend) master(ctx context.Context, id lite.BlockID) (m *master, err error) {
	var q lite.Message = lite.GetBlock{ID: id}
	if head, _ := b.knownHead(); id == head {
		q = b.servers.after(id.SeqNo, q)
	}
	err = b.servers.ask(ctx, q, func(answer lite.Message) error {
		return b.servers.parse(ctx, func() error {
			h, tops, err := parseBlock(answer, id, true)
			if err != nil {
				return err
			}
			m = &master{id: id, prev: h.prev[0], header: h, tops: tops}
			return nil
		})
	})
	return m, err
}

// parseBlock parses a response that must contain the whole block id. If shards is set, it also
// returns the newest block of each shard.
func parseBlock(answer lite.Message, id lite.BlockID, shards bool) (h header, tops []lite.BlockID, err error) {
	a, ok := answer.(lite.BlockData)
	if !ok {
		return h, nil, errAnswer
	}
	if sha256.Sum256(a.Data) != id.File { // parsing other bytes could take a hundred times as long
		return h, nil, fmt.Errorf("%w %v", errWrongBlock, id)
	}
	roots, err := cell.Parse(a.Data, 1, maxTreeCells)
	if err != nil {
		return h, nil, err
	}
	if roots[0].Hash(0) != id.Root {
		return h, nil, fmt.Errorf("%w %v", errWrongBlock, id)
	}
	if h, err = parseHeader(roots[0], id); err != nil || !shards {
		return h, nil, err
	}
	tops, err = parseShards(roots[0])
	return h, tops, err
}

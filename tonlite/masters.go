package tonlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A master is a masterchain block: what is needed of it.
type master struct {
	id, prev lite.BlockID
	header   header
	tops     []lite.BlockID // the newest block of each shard
}

var errFork = errors.New("tonlite: the masterchain has another block there than the one that was proven")

// current is the newest masterchain block: asked for, unless a Follow waits for
// the next one and so knows it.
func (b *Backend) current(ctx context.Context) (lite.BlockID, error) {
	if head, live := b.newest(); live {
		return head, nil
	}
	behind := false // some server is
	err := b.servers.ask(ctx, lite.GetMasterchainInfo{}, func(answer lite.Message) error {
		info, ok := answer.(lite.MasterchainInfo)
		if !ok || info.Last.Workchain != masterchain || info.Last.Shard != wholeShard {
			return errAnswer
		}
		if head, _ := b.newest(); info.Last.SeqNo < head.SeqNo {
			behind = true
			return errBehind
		}
		return b.advance(ctx, info.Last)
	})
	if b.opts.Unproven && behind && ctx.Err() == nil && b.dropHead(ctx) {
		return b.current(ctx)
	}
	head, _ := b.newest()
	if behind && ctx.Err() == nil {
		err = nil // nobody tells of a newer one
	}
	return head, err
}

// dropHead forgets an unproven head, and all that was read by it, if no server
// has it any more: the server that named it may have made it up. It reports
// whether there was one to drop.
func (b *Backend) dropHead(ctx context.Context) bool {
	head, _ := b.newest()
	if head.SeqNo == 0 {
		return false
	}
	if _, err := b.header(ctx, head); !errors.Is(err, errMissing) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.head != head {
		return false
	}
	b.head, b.oldest = lite.BlockID{}, 0
	b.masters.clear()
	b.steps.clear()
	b.opts.Logger.Warn("the newest masterchain block was dropped: no lite server has it", "seq_no", head.SeqNo)
	return true
}

func (b *Backend) newest() (head lite.BlockID, live bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head, b.live > 0 && b.head.SeqNo > 0
}

// advance takes a block for the newest one once it is proven, unless a newer
// one is known: the server is behind then.
func (b *Backend) advance(ctx context.Context, id lite.BlockID) error {
	head, _ := b.newest()
	if id.SeqNo < head.SeqNo || id == head {
		return nil
	}
	if b.opts.Unproven {
		err := b.follows(ctx, id, head)
		if err != nil && b.dropHead(ctx) {
			err = b.follows(ctx, id, lite.BlockID{})
		}
		return err
	}
	if id.SeqNo == head.SeqNo {
		return errFork
	}
	if err := b.trust.prove(ctx, id, head); err != nil {
		return err
	}
	b.adopt(id)
	return nil
}

func (b *Backend) adopt(id lite.BlockID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id.SeqNo > b.head.SeqNo {
		b.head = id
	}
}

// maxLinks is how many masterchain blocks are read before the newest of them is
// adopted as the head: after a long pause the head moves on in such strides.
const maxLinks = 256

// errHead says that a server named a head that is not the chain's.
var errHead = errors.New("the newest block that it names cannot be read, or does not lead back to the one known before")

// follows adopts a head that nobody proves: it must be readable, and lead back to
// the known one, block by block. If none is known yet, being readable is enough.
func (b *Backend) follows(ctx context.Context, id, known lite.BlockID) error {
	if known.SeqNo == 0 {
		m, err := b.master(ctx, id)
		if err != nil {
			return fmt.Errorf("%w: %v", errHead, err) // a server that lacks it lied, so not %w
		}
		b.masters.put(id.SeqNo, m)
		b.adopt(id)
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
		blocks, err := b.linked(ctx, known.SeqNo+1, to, name)
		if err == nil && blocks[0].prev != known {
			err = errFork
		}
		if err != nil {
			return fmt.Errorf("%w: %v", errHead, err)
		}
		b.keep(blocks)
		known = blocks[len(blocks)-1].id
		b.adopt(known)
	}
	return nil
}

// chain returns the masterchain blocks from one seq_no to another, which is not
// past the newest. The last is proven, and each names the one before it. So a
// server that tells of other blocks is noticed, and they are read by their
// proper names.
func (b *Backend) chain(ctx context.Context, from, to uint32) ([]*master, error) {
	blocks, err := b.linked(ctx, from, to, nil)
	if err == nil {
		b.keep(blocks)
	}
	return blocks, err
}

func (b *Backend) keep(blocks []*master) {
	for _, m := range blocks {
		b.masters.put(m.id.SeqNo, m)
	}
}

// linked reads the blocks of a chain without keeping them. If last is not nil it
// is the name of the last one.
func (b *Backend) linked(ctx context.Context, from, to uint32, last *lite.BlockID) ([]*master, error) {
	blocks := make([]*master, to-from+1)
	err := together(ctx, len(blocks), func(ctx context.Context, i int) (err error) {
		if newest := i == len(blocks)-1; newest && last != nil {
			blocks[i], err = b.master(ctx, *last)
		} else {
			blocks[i], err = b.peek(ctx, from+uint32(i), newest)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i := len(blocks) - 2; i >= 0; i-- {
		if blocks[i].id == blocks[i+1].prev {
			continue
		}
		if known, ok := b.masters.get(blocks[i].id.SeqNo); ok && known.id == blocks[i].id {
			return nil, errFork // both are proven
		}
		if blocks[i], err = b.master(ctx, blocks[i+1].prev); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

// peek reads a masterchain block by its seq_no: the one that is known to be
// right, or else the one that a server says it is, with a proof if need be.
func (b *Backend) peek(ctx context.Context, seqNo uint32, proven bool) (*master, error) {
	if m, ok := b.masters.get(seqNo); ok {
		return m, nil
	}
	if next, ok := b.masters.get(seqNo + 1); ok {
		return b.master(ctx, next.prev)
	}
	head, _ := b.newest()
	if head.SeqNo == seqNo {
		return b.master(ctx, head)
	}
	id, err := b.lookup(ctx, seqNo, func(id lite.BlockID) error {
		if !proven {
			return nil
		}
		return b.trust.prove(ctx, id, head)
	})
	if err != nil {
		return nil, err
	}
	return b.master(ctx, id)
}

// lookup asks which masterchain block has a seq_no.
func (b *Backend) lookup(ctx context.Context, seqNo uint32, check func(lite.BlockID) error) (id lite.BlockID, err error) {
	q := lite.LookupBlock{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo}
	err = b.servers.ask(ctx, q, func(answer lite.Message) error {
		if id, err = lookedUp(answer, seqNo); err != nil {
			return err
		}
		return check(id)
	})
	return id, err
}

func lookedUp(answer lite.Message, seqNo uint32) (lite.BlockID, error) {
	a, ok := answer.(lite.BlockHeader)
	if !ok || a.ID.Workchain != masterchain || a.ID.Shard != wholeShard || a.ID.SeqNo != seqNo {
		return lite.BlockID{}, errAnswer
	}
	return a.ID, nil
}

// master reads a masterchain block by its name, which its bytes must bear out.
func (b *Backend) master(ctx context.Context, id lite.BlockID) (m *master, err error) {
	err = b.servers.ask(ctx, lite.GetBlock{ID: id}, func(answer lite.Message) error {
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

// parseBlock reads a whole block.
func parseBlock(answer lite.Message, id lite.BlockID, shards bool) (h header, tops []lite.BlockID, err error) {
	a, ok := answer.(lite.BlockData)
	if !ok {
		return h, nil, errAnswer
	}
	roots, err := parseCells(a.Data, 1, maxTreeCells)
	if err != nil {
		return h, nil, err
	}
	if string(roots[0].Hash(0)) != string(id.Root[:]) {
		return h, nil, fmt.Errorf("%w: %v", errOther, id)
	}
	if h, err = parseHeader(roots[0], id); err != nil || !shards {
		return h, nil, err
	}
	tops, err = parseShards(roots[0])
	return h, tops, err
}

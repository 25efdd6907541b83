package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A trust knows a key block that is proven, and proves others from it.
type trust struct {
	servers *servers
	start   lite.BlockID // the configuration's; zero: nothing can be proven

	mu  sync.Mutex
	key lite.BlockID // the newest key block that was proven
}

// maxParts is how many answers one proof may take: each leads over a dozen key
// blocks or so, of which there are a few a day.
const maxParts = 10_000

var errUnproven = errors.New("tonlite: a masterchain block is not proven")

// prove sees that a masterchain block follows from one that is believed: from
// the newest key block, or, where it is older than that, from the newest block.
func (t *trust) prove(ctx context.Context, id, head lite.BlockID) error {
	if t.start.SeqNo == 0 {
		return nil
	}
	t.mu.Lock()
	from := t.key
	t.mu.Unlock()
	if id.SeqNo < from.SeqNo && head.SeqNo > 0 {
		from = head
	}
	for part := 0; from != id; part++ {
		if from.SeqNo == id.SeqNo || part == maxParts {
			return fmt.Errorf("%w: %v", errUnproven, id)
		}
		reached, key, err := t.lead(ctx, from, id)
		if err != nil {
			return fmt.Errorf("%w: %v: %w", errUnproven, id, err)
		}
		from = reached
		t.mu.Lock()
		if key.SeqNo > t.key.SeqNo {
			t.key = key
		}
		t.mu.Unlock()
	}
	return nil
}

// lead asks how a block leads to another, and goes as far as the answer does.
func (t *trust) lead(ctx context.Context, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	err = t.servers.ask(ctx, lite.GetBlockProof{Known: from, Target: to}, func(answer lite.Message) error {
		p, ok := answer.(lite.BlockProof)
		if !ok || len(p.Links) == 0 {
			return errAnswer
		}
		return t.servers.parse(ctx, func() (err error) {
			reached, key, err = along(p, from, to)
			return err
		})
	})
	return reached, key, err
}

// along goes over the links of an answer. Each answer must be worth its while:
// it ends at the block that was asked for, or at a key block that is nearer. Back
// leads its first link, from no key block to the one before, or its last, as nodes
// lead over the next key block to one before that; else it would go in circles.
func along(p lite.BlockProof, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	reached = from
	for i, l := range p.Links {
		if l.From != reached || reached == to {
			return reached, key, fmt.Errorf("%w: its links do not hang together", errProof)
		}
		check := forward
		if l.Back {
			if i > 0 && l.To != to {
				return reached, key, fmt.Errorf("%w: it leads in circles", errProof)
			}
			check = back
		}
		if err := check(l); err != nil {
			return reached, key, err
		}
		if reached = l.To; l.ToKey && l.To.SeqNo > key.SeqNo {
			key = l.To
		}
	}
	if reached != to && (p.Complete || reached != key || distance(reached, to) >= distance(from, to)) {
		return reached, key, fmt.Errorf("%w: it leads elsewhere", errProof)
	}
	return reached, key, nil
}

// distance is how far two masterchain blocks are apart.
func distance(a, b lite.BlockID) uint32 { return max(a.SeqNo, b.SeqNo) - min(a.SeqNo, b.SeqNo) }

package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A prover proves masterchain blocks from the newest proven key block.
type prover struct {
	servers   *servers
	initBlock lite.BlockID // of the configuration; if zero, nothing can be proven

	mu  sync.Mutex
	key lite.BlockID // the newest proven key block
}

// maxParts is the maximum number of responses for one proof. Each covers about a dozen key
// blocks, of which there are a few per day.
const maxParts = 10_000

var errUnproven = errors.New("tonlite: unproven masterchain block")

// prove proves a masterchain block from the newest proven key block or, if it is older than
// that, from the newest proven block.
func (t *prover) prove(ctx context.Context, id, head lite.BlockID) error {
	if t.initBlock.SeqNo == 0 {
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
		reached, key, err := t.proveStep(ctx, from, id)
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

// proveStep queries the proof from one block to another. The response may end before: it
// returns the block reached, and the newest key block on the way.
func (t *prover) proveStep(ctx context.Context, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	err = t.servers.ask(ctx, lite.GetBlockProof{Known: from, Target: to}, func(answer lite.Message) error {
		p, ok := answer.(lite.BlockProof)
		if !ok || len(p.Links) == 0 {
			return errAnswer
		}
		return t.servers.parse(ctx, func() (err error) {
			reached, key, err = followLinks(p, from, to)
			return err
		})
	})
	return reached, key, err
}

// followLinks checks the links of a response. To guarantee progress, a response must end at
// the target or at a key block that is closer to it. Only the first and the last link may lead
// backward: the first from a block that is not a key block to the key block before it, and the
// last because nodes reach some blocks through the next key block. Other backward links could
// form a cycle.
func followLinks(p lite.BlockProof, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	reached = from
	for i, l := range p.Links {
		if l.From != reached || reached == to {
			return reached, key, fmt.Errorf("%w: its links are not connected", errProof)
		}
		check := checkForward
		if l.Back {
			if i > 0 && l.To != to {
				return reached, key, fmt.Errorf("%w: it contains a cycle", errProof)
			}
			check = checkBack
		}
		if err := check(l); err != nil {
			return reached, key, err
		}
		if reached = l.To; l.ToKey && l.To.SeqNo > key.SeqNo {
			key = l.To
		}
	}
	if reached != to && (p.Complete || reached != key || distance(reached, to) >= distance(from, to)) {
		return reached, key, fmt.Errorf("%w: it does not lead to the target", errProof)
	}
	return reached, key, nil
}

// distance returns the number of masterchain blocks between two.
func distance(a, b lite.BlockID) uint32 { return max(a.SeqNo, b.SeqNo) - min(a.SeqNo, b.SeqNo) }

package tonlite

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// A prover proves masterchain blocks, starting from the newest key block that it has already
// proven.
type prover struct {
	servers   *servers
	initBlock lite.BlockID // from the configuration; if zero, prove accepts every block

	mu  sync.Mutex
	key lite.BlockID // the newest proven key block
}

// maxParts is the maximum number of responses for one proof. One response covers about a dozen
// key blocks, and there are a few key blocks per day.
const maxParts = 10_000

// If a response has fewer than minLinks links and does not reach the target, another server is preferred
// for the rest of the proof. Nodes send 16 links, but a server that sends fewer need not be malicious.
const minLinks = 8

var errUnproven = errors.New("tonlite: cannot prove masterchain block")

// prove proves the masterchain block id, starting from the newest proven key block. If id is
// older than that key block, prove starts from head, the newest proven block, unless head is
// zero.
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
			return fmt.Errorf("%w %v", errUnproven, id)
		}
		reached, key, err := t.proveStep(ctx, from, id)
		if err != nil {
			return fmt.Errorf("%w %v: %w", errUnproven, id, err)
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

// proveStep asks a server for a proof from one block to another and verifies the response. A
// response may end before the target: reached is the block at which it ends, and key is the
// newest key block that it proves.
func (t *prover) proveStep(ctx context.Context, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	var q lite.Message = lite.GetBlockProof{Known: from, Target: to}
	if from.SeqNo > to.SeqNo { // from may be the head
		q = t.servers.after(from.SeqNo, q)
	}
	links := 0
	err = t.servers.ask(ctx, q, func(answer lite.Message) error {
		p, ok := answer.(lite.BlockProof)
		if !ok || len(p.Links) == 0 {
			return errAnswer
		}
		links = len(p.Links)
		return t.servers.parse(ctx, func() (err error) {
			reached, key, err = followLinks(p, from, to)
			return err
		})
	})
	if err == nil && reached != to && links < minLinks {
		t.servers.preferNext()
	}
	return reached, key, err
}

// followLinks verifies the links in a response. An earlier block must be proven by one link, because
// the state after a block lists all earlier masterchain blocks. Links to a later block must, to
// guarantee progress, end at it or at a key block that is closer to it than from. Only the first
// and the last link may then lead backward, because other backward links could form a cycle. The
// first link may lead from a block that is not a key block to the key block before it. The last
// link may lead backward because nodes prove some blocks through the next key block. Every forward
// link must begin before to and end after from, because a detour with many valid links takes long to verify.
func followLinks(p lite.BlockProof, from, to lite.BlockID) (reached, key lite.BlockID, err error) {
	reached = from
	if from.SeqNo > to.SeqNo && (len(p.Links) != 1 || p.Links[0].To != to) {
		return reached, key, fmt.Errorf("%w: an earlier block must be proven by one link", errProof)
	}
	for i, l := range p.Links {
		if l.From != reached || reached == to {
			return reached, key, fmt.Errorf("%w: the links are not connected", errProof)
		}
		check := checkForward
		switch {
		case !l.Back && (l.From.SeqNo >= to.SeqNo || l.To.SeqNo <= from.SeqNo):
			return reached, key, fmt.Errorf("%w: a detour", errProof)
		case l.Back:
			if i > 0 && l.To != to {
				return reached, key, fmt.Errorf(
					"%w: a backward link is neither the first nor leads to the target", errProof)
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
		return reached, key, fmt.Errorf("%w: the links do not reach the requested block", errProof)
	}
	return reached, key, nil
}

// distance returns the difference between the seq_nos of two masterchain blocks.
func distance(a, b lite.BlockID) uint32 { return max(a.SeqNo, b.SeqNo) - min(a.SeqNo, b.SeqNo) }

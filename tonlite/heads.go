package tonlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

const (
	maxHeads    = 256              // maximum number of heads that a Backend keeps
	maxHeadAge  = time.Minute      // maximum age of earlierHead, and minimum age of headAfter, if there is such a head
	maxStartAge = 10 * time.Minute // maximum age of headAfter, because nodes delete old states
)

// An acceptedHead is a masterchain block that was accepted as the newest one.
type acceptedHead struct {
	id lite.BlockID
	at time.Time // when it was accepted
}

// knownHead returns the newest accepted masterchain block. live reports whether a Follow keeps
// that block up to date.
func (b *Backend) knownHead() (head lite.BlockID, live bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head, b.following > 0 && b.head.SeqNo > 0
}

// firstHead proves the newest block of the server that responds first. Because that server may be stuck, or hide new
// blocks, firstHead then continues with the servers that have announced a newer block, as long as each attempt proves
// more than maxLag blocks. A server that announces a false block therefore delays it by at most a timeout.
func (b *Backend) firstHead(ctx context.Context) error {
	if _, err := b.readHead(ctx); err != nil {
		return err
	}
	for {
		before := b.proven()
		if b.proveNewer(ctx); b.proven()-before <= maxLag {
			return nil
		}
	}
}

// proven returns the seq_no of the newest accepted masterchain block, or of the newest proven key block if that is
// newer.
func (b *Backend) proven() uint32 {
	head, _ := b.knownHead()
	b.prover.mu.Lock()
	defer b.prover.mu.Unlock()
	return max(head.SeqNo, b.prover.key.SeqNo)
}

// proveNewer asks the servers that have announced a newer block than the head for their newest blocks, for at most
// Options.Timeout, and makes the newest one that can be proven the head. If that takes longer, the key blocks proven so
// far are kept.
func (b *Backend) proveNewer(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	current := func(i int) bool {
		head, _ := b.knownHead()
		return b.servers.all[i].height() <= head.SeqNo
	}
	q := lite.GetMasterchainInfo{}
	newer := slices.DeleteFunc(b.servers.order(ctx, q), current)
	_ = b.servers.askIn(ctx, newer, q, func(ctx context.Context, answer lite.Message) error {
		id, err := announced(answer)
		switch {
		case err != nil:
			return err
		case b.opts.Unproven: // no block depends on the first head yet
			err = b.acceptUnproven(ctx, id, lite.BlockID{})
		default:
			err = b.advance(ctx, id)
		}
		if err == nil && slices.ContainsFunc(newer, func(i int) bool { return !current(i) }) {
			err = errLagging
		}
		return err
	})
}

// watchHead returns the newest accepted masterchain block, and a channel that is closed when a newer one is
// accepted.
func (b *Backend) watchHead() (head lite.BlockID, moved <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head, b.moved
}

func (b *Backend) setHead(id lite.BlockID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if id.SeqNo > b.head.SeqNo {
		b.head = id
		b.servers.head.Store(id.SeqNo)
		b.heads = append(b.heads, acceptedHead{id, time.Now()})
		n := max(0, len(b.heads)-maxHeads)
		for n+1 < len(b.heads) && b.passed(b.heads[n+1]) {
			n++
		}
		b.heads = slices.Delete(b.heads, 0, n)
		close(b.moved)
		b.moved = make(chan struct{})
	}
}

// headAt returns the head with the given seq_no, which may be an earlier one and needs no further proof.
func (b *Backend) headAt(seqNo uint32) (head lite.BlockID, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.heads, func(h acceptedHead) bool { return h.id.SeqNo == seqNo })
	if i < 0 {
		return head, false
	}
	return b.heads[i].id, true
}

// anyHead reports whether f returns true for any cached head. It calls f with b.mu held, for the newest head first.
func (b *Backend) anyHead(f func(m *master) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range slices.Backward(b.heads) {
		if m, ok := b.masters.get(h.id.SeqNo); ok && f(m) {
			return true
		}
	}
	return false
}

// setReached records that servers lag, and have just got the block with the given seq_no. 0 means that they do not lag
// any more. A Follow that ends leaves it, because the next one may need time to find the lag again.
func (b *Backend) setReached(seqNo uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reached = seqNo
}

// reachedHead returns the newest head that servers that lag have, if that is known and at most maxHeadAge old.
func (b *Backend) reachedHead() (head lite.BlockID, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range slices.Backward(b.heads) {
		if h.id.SeqNo <= b.reached {
			return h.id, time.Since(h.at) <= maxHeadAge
		}
	}
	return head, false
}

// earlierHead returns the masterchain block that was the head minAge ago. Servers that lag have it, too. If that block
// is not known, or more than maxHeadAge old, earlierHead returns the oldest head after it.
func (b *Backend) earlierHead(minAge time.Duration) lite.BlockID {
	b.mu.Lock()
	defer b.mu.Unlock()
	age := func(i int) time.Duration { return time.Since(b.heads[i].at) }
	if len(b.heads) == 0 {
		return b.head
	}
	n := 0
	for n+1 < len(b.heads) && (age(n+1) >= minAge || age(n) > maxHeadAge) {
		n++
	}
	return b.heads[n].id
}

// headAfter returns the head after the masterchain block with the given seq_no that servers are most likely to have: it
// was the head so long ago that servers that lag by a minute, or by maxLag blocks, have it, too. If no such head is
// known, headAfter returns the oldest one that is, which may be the current head.
func (b *Backend) headAfter(seqNo uint32) lite.BlockID {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.heads) == 0 {
		return b.head
	}
	n := 0
	for n+1 < len(b.heads) && (b.heads[n].id.SeqNo <= seqNo || b.passed(b.heads[n+1]) ||
		time.Since(b.heads[n].at) > maxStartAge) {
		n++
	}
	return b.heads[n].id
}

// passed reports whether a server that does not have h is stuck, rather than lags. Call it with b.mu held.
func (b *Backend) passed(h acceptedHead) bool {
	return time.Since(h.at) >= maxHeadAge && b.head.SeqNo-h.id.SeqNo >= maxLag
}

// prove proves the masterchain block id, which must be older than the head. The proof starts from headAfter. If no
// server has that block any more, it starts from the head.
func (b *Backend) prove(ctx context.Context, id lite.BlockID) error {
	head, _ := b.knownHead()
	if start := b.headAfter(id.SeqNo); start != head {
		if err := b.prover.prove(ctx, id, start); !errors.Is(err, errMissing) {
			return err
		}
	}
	return b.prover.prove(ctx, id, head)
}

// atHead calls read with the head, or with reachedHead if there is such a head. If the servers that have the data lag
// behind, atHead calls read again with an earlier head, which was the newest Options.Timeout ago. If that is known not
// to be enough, it is the oldest one that may be used.
func (b *Backend) atHead(ctx context.Context, read func(head lite.BlockID) error) error {
	head, err := b.currentHead(ctx)
	if err != nil {
		return err
	}
	minAge := b.opts.Timeout
	if earlier, ok := b.reachedHead(); ok {
		head, minAge = earlier, maxHeadAge
	}
	err = read(head)
	if !errors.Is(err, errMissing) && !isLag(err) || ctx.Err() != nil {
		return err
	}
	if earlier := b.earlierHead(minAge); earlier.SeqNo < head.SeqNo {
		return read(earlier)
	}
	return err
}

// errFarBehind is the response of a server that is so far behind a block that it does not wait for the block.
var errFarBehind = lite.Error{Code: lite.CodeNotFound, Message: "too big masterchain block seqno"}

// isLag reports whether err is the response of a server that lags, or contains one.
func isLag(err error) bool {
	return errors.Is(err, lite.Error{Code: lite.CodeTimeout}) || errors.Is(err, errFarBehind)
}

// after returns a query that a server answers like q, but that lets a server that lags wait for the
// masterchain block with the given seq_no first, for at most a quarter of Options.Timeout.
func (set *servers) after(seqNo uint32, q lite.Message) lite.Message {
	return lite.Wait{SeqNo: seqNo, Timeout: uint32(set.opts.Timeout.Milliseconds() / 4), Then: q}
}

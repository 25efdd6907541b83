package tonlite

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// For slowFactor, see order.
const slowFactor = 2

// order returns the indexes of the servers in the order in which they receive q: first the preferred server, and then
// those that usually respond faster before the others. If the preferred server usually takes slowFactor times as long
// as the fastest one, but at least minHedgeDelay, it has no precedence: a page may take more than 20 round trips. It
// keeps its precedence only for a block that the fastest server has not announced. Servers that lack what others have
// come last. Otherwise each query that such a server denies would go to all servers, see askAll.
func (set *servers) order(ctx context.Context, q lite.Message) []int {
	first := int(set.preferred.Load())
	order := make([]int, len(set.all))
	for i := range order {
		order[i] = (first + i) % len(order)
	}
	byLatency := func(x, y int) int { return cmp.Compare(set.all[x].usualLatency(), set.all[y].usualLatency()) }
	slices.SortStableFunc(order[1:], byLatency)
	if len(order) > 1 {
		wait, _ := q.(lite.Wait)
		fastest := set.all[order[1]]
		slow := set.all[first].usualLatency() > max(minHedgeDelay, slowFactor*fastest.usualLatency())
		if slow && fastest.height() >= wait.SeqNo {
			slices.SortStableFunc(order, byLatency)
		}
	}
	if _, ok := q.(lite.GetMasterchainInfo); ok || inHaste(ctx) { // in haste, one that denies soon saves time
		return order
	}
	of, seqNo := set.ageOf(q)
	var last []int
	order = slices.DeleteFunc(order, func(i int) bool {
		lacks := set.all[i].lacks(of, seqNo)
		if lacks {
			last = append(last, i)
		}
		return lacks
	})
	return append(order, last...)
}

// An age tells queries for blocks that servers may have deleted from all others.
type age int

const (
	recent age = iota
	old
	unknown
	ages
)

// lackTime is how long a server is asked last after it did not send a block that another one sent. Deleted blocks
// rarely return.
var lackTime = [ages]time.Duration{recent: time.Minute, old: 10 * time.Minute, unknown: 10 * time.Minute}

// ageOf returns the age of the block that q is about: old for old masterchain blocks and the shard blocks to which one
// commits, and unknown for shard blocks that are looked up. seqNo is that of the masterchain block, or 0.
func (set *servers) ageOf(q lite.Message) (of age, seqNo uint32) {
	seqNo, _ = masterLookup(q)
	if wait, ok := q.(lite.Wait); ok {
		q = wait.Then
	}
	switch q := q.(type) {
	case lite.GetBlockProof:
		seqNo = q.Target.SeqNo
	case lite.LookupBlock:
		if q.Workchain != masterchain {
			return unknown, 0
		}
	}
	if older(seqNo, set.head.Load()) {
		return old, seqNo
	}
	return recent, seqNo
}

// older reports whether a query for the masterchain block with the given seq_no is about a block that is too old to be
// late. 0 stands for any other query.
func older(seqNo, head uint32) bool { return seqNo > 0 && seqNo < head && head-seqNo > maxLag }

// claimedKey is the key of a context for reading a block that only one server has named. If only that one has it, the
// others do not lack it.
type claimedKey struct{}

// learn records that server s sent what q asks for, and that others lack it.
func (set *servers) learn(ctx context.Context, q lite.Message, s *server, lacking []*server) {
	if ctx.Value(claimedKey{}) != nil {
		return
	}
	of, seqNo := set.ageOf(q)
	s.has(of, seqNo)
	for _, other := range lacking {
		other.lack(of, seqNo, set.head.Load())
	}
}

// onlySlow reports whether server s, which has not responded to q, is expected to have the block, or to lag.
func (set *servers) onlySlow(s *server, q lite.Message) bool {
	of, seqNo := set.ageOf(q)
	s.mu.Lock()
	sent := s.sent(of, seqNo)
	s.mu.Unlock()
	return sent || set.mayLag(s, q)
}

// preferNext makes the server after the preferred one the preferred one.
func (set *servers) preferNext() {
	set.preferred.Store((set.preferred.Load() + 1) % uint32(len(set.all)))
}

// lack records that the server did not send such a block, but another one did. seqNo is that of the masterchain block.
func (s *server) lack(of age, seqNo, head uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lackUntil[of] = time.Now().Add(lackTime[of])
	if of == old && s.oldest > 0 && seqNo >= s.oldest { // deleted meanwhile, with others
		s.oldest = seqNo + 1 + (max(head, seqNo)-seqNo)/8
	}
}

// has records that the server sent such a block. One that lacks others must not regain its place with a single block.
func (s *server) has(of age, seqNo uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of == old && time.Now().After(s.lackUntil[old]) && (s.oldest == 0 || seqNo < s.oldest) {
		s.oldest = seqNo
	}
}

// lacks reports whether the server comes last in queries for such a block. If it lacks an old one, it is expected to
// lack all that are older than the oldest that it sent. It keeps its place for newer ones, because anybody can ask for
// blocks that only a distant server has.
func (s *server) lacks(of age, seqNo uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.lackUntil[of]) && !s.sent(of, seqNo)
}

// sent reports whether the server sent such an old block, or an older one. The caller holds s.mu.
func (s *server) sent(of age, seqNo uint32) bool {
	return of == old && s.oldest > 0 && seqNo >= s.oldest
}

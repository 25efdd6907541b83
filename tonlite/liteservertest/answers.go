package liteservertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// maxWait is how many masterchain blocks after the newest one a query may wait for. That of a node is the same.
const maxWait = 100

// answer returns the response to a query, or nil if ctx is done before there is one.
func (s *Server) answer(ctx context.Context, q lite.Message) lite.Message {
	rejected := s.count(q)
	if !s.awaitResume(ctx) || !s.awaitDelay(ctx, q) {
		return nil
	}
	if rejected {
		return lite.Error{Code: lite.CodeRateLimit, Message: "Ratelimit exceeded"}
	}
	s.mu.Lock()
	w, waits := q.(lite.Wait)
	tooBig := waits && w.SeqNo > s.newest()+maxWait
	waits = waits && w.SeqNo > s.head
	s.mu.Unlock()
	if w, ok := q.(lite.Wait); ok {
		if tooBig {
			return lite.Error{Code: lite.CodeNotFound, Message: "too big masterchain block seqno"}
		}
		if !s.wait(ctx, w) {
			if ctx.Err() != nil {
				return nil
			}
			return lite.Error{Code: lite.CodeTimeout, Message: "timeout"}
		}
		q = w.Then
	}
	if !s.awaitResume(ctx) {
		return nil
	}
	s.mu.Lock()
	lie, newWait, lackWait := s.lie, s.newWait, s.lackWait
	s.mu.Unlock()
	a, err := s.find(q)
	if err != nil {
		a = lite.Error{Code: lite.CodeNotFound, Message: err.Error()}
	}
	a = lie.apply(s.chain, q, a)
	var late time.Duration
	if waits {
		late = newWait
	}
	if e, ok := a.(lite.Error); ok && e.Code == lite.CodeNotFound {
		late += lackWait
	}
	if !sleep(ctx, late) {
		return nil
	}
	return a
}

// count counts a query for Asked, and reports whether Reject has its kind. A query that waits for a
// block counts as the query that it contains.
func (s *Server) count(q lite.Message) (rejected bool) {
	if w, ok := q.(lite.Wait); ok {
		q = w.Then
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", q), "lite.")
	kind = strings.ToLower(kind[:1]) + kind[1:]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[kind]++
	return slices.Contains(s.rejected, kind)
}

// awaitResume waits while the Server is stalled. It returns false if ctx is done first.
func (s *Server) awaitResume(ctx context.Context) bool {
	s.mu.Lock()
	stalled, resumed := s.stalls > 0, s.resumed
	s.mu.Unlock()
	if !stalled {
		return true
	}
	select {
	case <-resumed:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitDelay waits for the time that Delay, DelayData and DelayWaiting have set. It returns false if ctx
// is done first.
func (s *Server) awaitDelay(ctx context.Context, q lite.Message) bool {
	w, waits := q.(lite.Wait)
	if waits {
		q = w.Then
	}
	s.mu.Lock()
	d := s.delay
	if waits {
		d += s.waitWait
	}
	switch q.(type) {
	case lite.GetMasterchainInfo, lite.LookupBlock:
	default:
		d += s.dataWait
	}
	s.mu.Unlock()
	return sleep(ctx, d)
}

// sleep waits for d. It returns false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// wait waits until the Server has the masterchain block that w asks for. It returns false if the
// timeout of w expires or ctx is done first.
func (s *Server) wait(ctx context.Context, w lite.Wait) bool {
	timer := time.NewTimer(time.Duration(w.Timeout) * time.Millisecond)
	defer timer.Stop()
	for {
		s.mu.Lock()
		newest, grown := s.newest(), s.grown
		s.mu.Unlock()
		if newest >= w.SeqNo {
			return true
		}
		select {
		case <-grown:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// find returns the true response to a query.
func (s *Server) find(q lite.Message) (lite.Message, error) {
	c := s.chain
	switch q := q.(type) {
	case lite.GetMasterchainInfo:
		s.mu.Lock()
		last, ok := c.master(s.head)
		s.mu.Unlock()
		if !ok {
			return nil, errMissing
		}
		return lite.MasterchainInfo{Last: last, ZeroRoot: c.zeroRoot, ZeroFile: c.zeroFile}, nil
	case lite.LookupBlock:
		id, ok := c.lookUp(q)
		if !ok {
			return nil, errMissing
		}
		b, err := s.block(id)
		if err != nil {
			return nil, err
		}
		return lite.BlockHeader{ID: id, Mode: 1, Proof: headerProof(b.root).ToBOC()}, nil
	case lite.GetBlock:
		b, err := s.block(q.ID)
		if err != nil {
			return nil, err
		}
		return lite.BlockData{ID: q.ID, Data: b.data}, nil
	case lite.GetBlockHeader:
		b, err := s.block(q.ID)
		if err != nil {
			return nil, err
		}
		return lite.BlockHeader{ID: q.ID, Proof: headerProof(b.root).ToBOC()}, nil
	case lite.GetAllShardsInfo:
		b, err := s.block(q.ID)
		if err != nil {
			return nil, err
		}
		return shardsInfo(q.ID, b)
	case lite.GetAccountState:
		return s.accountState(q)
	case lite.GetBlockProof:
		return s.blockProof(q)
	}
	return nil, errMissing
}

var errMissing = fmt.Errorf("block is not in db")

// block returns the block with the given id. It returns errMissing if the Server does not have
// the block yet or has deleted it.
func (s *Server) block(id lite.BlockID) (*block, error) {
	b, ok := s.chain.blocks[id]
	if !ok {
		return nil, errMissing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id.Workchain == masterchain &&
		(id.SeqNo > s.head || id.SeqNo < s.oldest || s.lost[0] <= id.SeqNo && id.SeqNo <= s.lost[1]) {
		return nil, errMissing
	}
	if id.Workchain != masterchain && s.chain.facts != nil && // the tops of a recorded chain are not known
		(s.chain.commits(s.oldestShards-1, id) || !s.chain.commits(min(s.newest(), s.chain.last), id)) {
		return nil, errMissing
	}
	return b, nil
}

func (s *Server) accountState(q lite.GetAccountState) (lite.Message, error) {
	master, err := s.block(q.ID)
	if err != nil {
		return nil, err
	}
	shard, b := q.ID, master
	if q.Workchain != masterchain {
		found := false
		for _, top := range master.tops {
			if top.Workchain == q.Workchain && contains(top.Shard, q.Account) {
				shard, found = top, true
			}
		}
		if !found || shard.SeqNo == 0 {
			return nil, errMissing
		}
		if b, err = s.block(shard); err != nil {
			return nil, err
		}
	}
	state, ok := s.chain.states[shard.Root]
	if !ok {
		return nil, errMissing
	}
	proof, account, err := accountProof(state, q.Account)
	if err != nil {
		return nil, err
	}
	a := lite.AccountState{ID: q.ID, Shard: shard, Proof: bag(updateProof(b.root), proof)}
	if account != nil {
		if !q.Whole {
			account = prove(account, cell.CreateProofSkeleton()) // without its code and data
		}
		a.State = account.ToBOC()
	}
	if q.Workchain != masterchain {
		a.ShardProof = s.shardProof(q.ID, master)
	}
	return a, nil
}

// contains reports whether an account is in a shard.
func contains(shard uint64, account [32]byte) bool {
	var id uint64
	for _, b := range account[:8] {
		id = id<<8 | uint64(b)
	}
	bit := shard & -shard
	return (shard^id)&^(bit<<1-1) == 0
}

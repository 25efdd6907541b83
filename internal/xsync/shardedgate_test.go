package xsync

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestShardAdmitsItsLimitAndTheCommonGateAllOthers(t *testing.T) {
	g := NewShardedGate(2)
	for i, want := range []bool{true, true, false, false} {
		if gate, first := g.Enter(0); gate == nil || first != want {
			t.Errorf("member %d: first is %v, want %v", i, first, want)
		}
	}
	own, first := g.Enter(uint32(len(g.shards) + 1)) // the second shard, or the first one of a single processor
	if own == nil || first != (len(g.shards) > 1) {
		t.Errorf("a member of another shard: first is %v with %d shards", first, len(g.shards))
	}
	if none, first := NewShardedGate(0).Enter(7); none == nil || first {
		t.Error("a gate without shards does not use the common Gate")
	}
}

func TestClosedShardedGateRefusesEveryMemberAtOnceAndWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewShardedGate(1)
		var inside []*Gate
		for n := range uint32(len(g.shards)) {
			for range 2 { // one in the shard and one in the common Gate
				gate, _ := g.Enter(n)
				inside = append(inside, gate)
			}
		}
		inside[0].Leave() // otherwise all shards would be full
		inside = inside[1:]
		var ended atomic.Bool
		go func() {
			if err := g.Close(t.Context()); err != nil {
				t.Error(err)
			}
			ended.Store(true)
		}()
		synctest.Wait()
		for n := range uint32(len(g.shards)) {
			if gate, _ := g.Enter(n); gate != nil {
				t.Errorf("shard %d of the closed gate admits a member", n)
			}
		}
		if !g.Closed() {
			t.Error("Closed returned false")
		}
		expired, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Close(expired); !errors.Is(err, context.Canceled) {
			t.Errorf("Close with members and a canceled context returned %v", err)
		}
		for _, gate := range inside {
			synctest.Wait()
			if ended.Load() {
				t.Fatal("Close returned before all members had left")
			}
			gate.Leave()
		}
		synctest.Wait()
		if !ended.Load() {
			t.Error("Close did not return after all members had left")
		}
	})
}

func TestShardedGateNeverAdmitsMoreFirstMembersThanItsLimit(t *testing.T) {
	g := NewShardedGate(3)
	most := int64(3 * len(g.shards))
	var firsts atomic.Int64
	var all sync.WaitGroup
	for n := range uint32(16) {
		all.Go(func() {
			for range 2000 {
				gate, first := g.Enter(n)
				if first {
					if now := firsts.Add(1); now > most {
						t.Errorf("%d members are in shards, want at most %d", now, most)
					}
					firsts.Add(-1)
				}
				gate.Leave()
			}
		})
	}
	all.Wait()
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

package chaingql

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// places bounds the requests of a kind. A twentieth of them is left to peers that have none. A peer may have as many of
// the others as are free, in addition to the first eighth, so one peer can have 11/20 of all, and three can have 17/20.
// Requests without a valid address are not counted for a peer. A nil places has no limit.
type places struct {
	most int64
	used atomic.Int64

	mu sync.Mutex
	of map[netip.AddrPort]int64 // the number of places that each peer has, except for those that were not counted
}

// A takenPlace is the place of one request. The zero takenPlace is none.
type takenPlace struct{ entered, counted bool }

// newPlaces returns most places; 0 means no limit.
func newPlaces(most int) *places {
	if most == 0 {
		return nil
	}
	return &places{most: int64(most), of: make(map[netip.AddrPort]int64)}
}

// enter takes a place for a client with the network address remote. If givesWay, it leaves a fortieth of all places to
// others. While few places are used, it does not count for which peer: that would cost a sixth of the time of a query
// for a balance.
func (p *places) enter(x *takenPlace, remote string, givesWay bool) bool {
	if p == nil {
		return true
	}
	for used := p.used.Load(); used < p.most/8; used = p.used.Load() {
		if p.used.CompareAndSwap(used, used+1) {
			*x = takenPlace{entered: true}
			return true
		}
	}
	peer := peerAt(remote)
	p.mu.Lock()
	defer p.mu.Unlock()
	has, left := p.of[peer], int64(0)
	if has > 0 {
		left = p.most / 20
	} else if givesWay {
		left = p.most / 40
	}
	if has >= p.most-p.used.Load()-left {
		return false
	}
	p.used.Add(1)
	*x = takenPlace{entered: true, counted: peer.Addr().IsValid()}
	if x.counted {
		p.of[peer]++
	}
	return true
}

// leave frees the place of a client, if x is one.
func (p *places) leave(x *takenPlace, remote string) {
	if !x.entered {
		return
	}
	p.used.Add(-1)
	if x.counted {
		peer := peerAt(remote)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.of[peer]--; p.of[peer] == 0 {
			delete(p.of, peer)
		}
	}
	*x = takenPlace{}
}

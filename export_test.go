package chaingql

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Subscribe starts a subscription without a transport, so that only the subscription itself uses memory.
func (h *Handler) Subscribe(document string, variables map[string]any) (stop func(), err error) {
	one := &testPeers[nextTestPeer.Add(1)%uint32(len(testPeers))]
	return h.SubscribeAs(one, document, variables)
}

var (
	testPeers    [1 << 13]peer // tests that measure memory do not measure that of peers
	nextTestPeer atomic.Uint32
)

// NewPeer returns a peer for SubscribeAs.
var NewPeer = newPeer

// SubscribeAs starts a subscription of a peer.
func (h *Handler) SubscribeAs(by *peer, document string, variables map[string]any) (stop func(), err error) {
	op, errs := h.plans.Prepare(document, "", variables)
	if errs != nil {
		return nil, errs
	}
	s, refused := h.subscribe(context.Background(), op, subscriber{wake: xsync.WakeFunc(func() {}), peer: by})
	if refused != nil {
		return nil, plan.Errors{refused}
	}
	return func() { s.close(nil) }, nil
}

// Peers returns the number of peers with sockets or event streams, or whose usage is kept.
func (h *Handler) Peers() int {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	return len(h.peers.of)
}

// Retained returns the number of subscriptions and the bytes counted for them.
func (h *Handler) Retained() (count, bytes int) {
	h.subscriptionQuota.mu.Lock()
	defer h.subscriptionQuota.mu.Unlock()
	return h.subscriptionQuota.count, h.subscriptionQuota.bytes
}

// Checksum returns the checksum at the end of a cursor with reported gaps.
func Checksum(text string) string { return sumOf(text) }

// ShareGroups returns the number of evaluations per new block.
func (h *Handler) ShareGroups() int { return h.chains.current().blocks.Stats().Groups }

// EventStreams returns the number of open event streams.
func (h *Handler) EventStreams() int { return h.streams.Members() }

// Defaults returns the options with all defaults.
func Defaults() Options { return Options{}.withDefaults() }

// Fixed holds the timeouts that no option changes, in the order of docs/limits.md.
var Fixed = []time.Duration{initTimeout, unusedTimeout, frameTimeout, socketWriteTimeout, streamWriteTimeout}

// Pending returns the bytes counted for request bodies and for responses.
func (h *Handler) Pending() (bodies, answers int) {
	return h.bodies.Used(), h.responses.Used()
}

// HoldPreparations makes all requests wait to be prepared until release is called.
func (h *Handler) HoldPreparations() (release func()) {
	p := &h.preparing
	all := []*xsync.Lane{p.small, p.messages.compiled, p.messages.small, p.large}
	for _, lane := range all {
		for range runtime.GOMAXPROCS(0) {
			lane.Enter(context.Background())
		}
	}
	return func() {
		for _, lane := range all {
			for range runtime.GOMAXPROCS(0) {
				lane.Leave()
			}
		}
	}
}

// UseDraftStatuses makes h respond as if the constant draftStatuses were draft.
func (h *Handler) UseDraftStatuses(draft bool) { h.draftStatuses = draft }

// EnterMany counts a query for many blocks of a client with the network address remote, until leave is called.
func (h *Handler) EnterMany(remote string) (leave func()) {
	var x takenPlace
	if !h.many.enter(&x, remote, false) {
		panic("there is no room")
	}
	return func() { h.many.leave(&x, remote) }
}

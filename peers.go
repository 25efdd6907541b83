package chaingql

import (
	"container/list"
	"net/netip"
	"strings"
	"sync"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/xsync"
)

// maxLeftPeers is the maximum number of peers without sockets and event streams whose usage is kept.
const maxLeftPeers = 4096

// peers contains a peer for each address with sockets or event streams. A client can open and close these again and
// again. So the usage of a peer is kept for some time after it has left.
type peers struct {
	mu   sync.Mutex
	of   map[netip.AddrPort]*peer
	left list.List // of the *peer that have left; those that have left first come first
}

// A peer is a client as far as the Handler can identify it: by its address. It counts what it uses, so that others are
// served first.
type peer struct {
	pages, turns, live xsync.Usage // of all subscriptions

	slots *xsync.Semaphore // for event streams that have a turn or wait for one

	// subscriptionQuota.mu guards these fields.
	held   int // the memory of all subscriptions
	unsent int // the memory of their events of hosts' fields that were not sent yet

	bodies int // the memory of bodies that arrive; the budget of bodies guards it

	// peers.mu guards these fields.
	at     netip.AddrPort
	active int           // number of sockets and event streams
	left   *list.Element // in peers.left, or nil
}

func newPeer() *peer { return &peer{slots: xsync.NewSemaphore(turnsAtOnce())} }

// A subscriber is the client of a subscription.
type subscriber struct {
	caller
	ownTrace int    // the size of caller.trace, unless the socket keeps it
	last     string // the last cursor that the client received, if it sent one; otherwise ""
	wake     xsync.Waker
	client   *blocklog.Client // may be nil
	peer     *peer
}

// enter returns the peer with an address. The caller must call leave.
func (p *peers) enter(remote string) *peer {
	at := peerAt(remote)
	if !at.Addr().IsValid() {
		return newPeer() // the connections of a Unix socket have the same address
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found := p.of[at]
	switch {
	case found == nil:
		if p.of == nil {
			p.of = make(map[netip.AddrPort]*peer)
		}
		found = newPeer()
		found.at, p.of[at] = at, found
	case found.left != nil:
		p.left.Remove(found.left)
		found.left = nil
	}
	found.active++
	return found
}

func (p *peers) leave(gone *peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if gone.active--; gone.active > 0 || !gone.at.Addr().IsValid() {
		return
	}
	if max(gone.pages.Time(), gone.turns.Time(), gone.live.Time()) == 0 {
		delete(p.of, gone.at)
		return
	}
	gone.left = p.left.PushBack(gone)
	if p.left.Len() > maxLeftPeers {
		first := p.left.Remove(p.left.Front()).(*peer)
		delete(p.of, first.at)
	}
}

// The addresses of nat64 contain IPv4 addresses in their last bytes (RFC 6052). Those of sharedSpace are local (RFC
// 6598).
var (
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	sharedSpace = netip.MustParsePrefix("100.64.0.0/10")
)

// peerAt returns the address that identifies a peer: an address of the internet without its port, or for IPv6 its
// network of 64 bits. A local address with a port may be that of a proxy, whose connections are those of different
// clients. A host that replaces the address of its proxy by that of the client has no port. The result is invalid if
// remote is no address.
func peerAt(remote string) netip.AddrPort {
	var at netip.AddrPort
	if strings.HasPrefix(remote, "[") || strings.Count(remote, ":") == 1 { // the wrong function would allocate an error
		at, _ = netip.ParseAddrPort(remote)
	} else {
		addr, _ := netip.ParseAddr(remote)
		at = netip.AddrPortFrom(addr, 0)
	}
	addr := at.Addr().Unmap().WithZone("")
	if nat64.Contains(addr) {
		all := addr.As16()
		addr = netip.AddrFrom4([4]byte(all[12:]))
	}
	if at.Port() != 0 && (!addr.IsGlobalUnicast() || addr.IsPrivate() || sharedSpace.Contains(addr)) {
		return at
	}
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		addr = network.Addr()
	}
	return netip.AddrPortFrom(addr, 0)
}

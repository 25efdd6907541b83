package main

import (
	"context"
	"net/http"
	"net/netip"
	"sync"

	"github.com/chaingql/chaingql"
)

// perAddress limits the requests, event streams and sockets that one address has in progress. The Handler limits only
// those of all addresses together, because it cannot know whether an address is that of a client or of a proxy.
type perAddress struct {
	max int // 0 means no limit

	mu         sync.Mutex
	inProgress map[netip.Prefix]int
}

// middleware refuses requests from addresses that have more than p.max in progress.
func (p *perAddress) middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer p.add(r.RemoteAddr, -1)
		if n := p.add(r.RemoteAddr, 1); n > p.max && p.max > 0 {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests from this address are in progress.", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// hooks returns the hooks that count sockets. The middleware does not, because the Handler returns when the handshake
// has finished.
func (p *perAddress) hooks() chaingql.Hooks {
	return chaingql.Hooks{
		SocketOpened: func(_ context.Context, s chaingql.Socket) { p.add(s.Remote, 1) },
		SocketClosed: func(_ context.Context, s chaingql.Socket, _ chaingql.Reason, _ error) { p.add(s.Remote, -1) },
	}
}

// add changes the number in progress for an address and returns the new number.
func (p *perAddress) add(remote string, change int) int {
	client := clientOf(remote)
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.inProgress[client] + change
	if n == 0 {
		delete(p.inProgress, client)
		return 0
	}
	if p.inProgress == nil {
		p.inProgress = make(map[netip.Prefix]int)
	}
	p.inProgress[client] = n
	return n
}

// clientOf returns the addresses that count as one client: an IPv4 address or an IPv6 network of 64 bits. remote may
// have a port. All invalid addresses count as one client.
func clientOf(remote string) netip.Prefix {
	ip, err := netip.ParseAddr(remote)
	if err != nil {
		ipPort, _ := netip.ParseAddrPort(remote)
		ip = ipPort.Addr()
	}
	ip = ip.Unmap()
	network, _ := ip.Prefix(min(64, ip.BitLen()))
	return network
}

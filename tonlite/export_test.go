package tonlite

import "time"

// Hurry sets the deadline of further queries. Do not call it while the Backend connects to a
// server.
func (b *Backend) Hurry(timeout time.Duration) {
	b.opts.Timeout, b.servers.opts.Timeout = timeout, timeout
	for _, s := range b.servers.all {
		s.timeout = timeout
	}
}

// Prefer makes a server the preferred one.
func (b *Backend) Prefer(index uint32) { b.servers.preferred.Store(index) }

package tonlite

import "time"

// Hurry sets the deadline of queries to come. No server may be connected to
// meanwhile.
func (b *Backend) Hurry(timeout time.Duration) {
	b.opts.Timeout, b.servers.opts.Timeout = timeout, timeout
	for _, s := range b.servers.all {
		s.timeout = timeout
	}
}

package tonlite

import (
	"context"
	"log/slog"
	"net"
	"time"
)

// These are the default values of [Options].
const (
	DefaultTimeout = 5 * time.Second
	DefaultCache   = 1024
)

// Options configure a [Backend]. The zero value is safe in production.
type Options struct {
	// Timeout limits each query to a server and each attempt to connect to one. If a server
	// exceeds Timeout, the Backend stops using it for a while and queries another server. One
	// call may therefore take several times Timeout. If there are several servers, and the
	// context of a call has less than twice Timeout left, a server gets only half of the
	// remaining time, but at least a third of Timeout, so that another server can still
	// respond. If a server reports no new masterchain block for Timeout, Follow switches to
	// another server. If Timeout is zero or negative, DefaultTimeout is used.
	Timeout time.Duration

	// Cache is the maximum number of masterchain blocks that are cached together with the shard
	// blocks that they commit to. Each needs about 1 kB. The Backend also caches up to four times
	// as many masterchain blocks without their shard blocks, and Cache headers of shard blocks.
	// If Cache is zero or negative, DefaultCache is used.
	Cache int

	// Unproven accepts masterchain blocks without checking signatures. A new head, which is the
	// newest masterchain block, must be readable and must lead back, block by block, to the
	// previous head. If no server has the head any more, the Backend drops it. Open logs a
	// warning if Unproven is set. If Unproven is false, and the configuration has no init_block
	// or its init_block is the zero state, Open returns an error. In both modes, shard blocks and
	// balances are proven from masterchain blocks.
	Unproven bool

	// Logger receives a warning if
	//
	//   - a server is not used for a while because it failed or sent an invalid response
	//   - the newest masterchain block is dropped because no server has it any more (only if
	//     Unproven is set)
	//   - blocks are accepted without proof because Unproven is set
	//
	// Default: slog.Default().
	Logger *slog.Logger

	dial dialFunc // tests replace it
}

// A dialFunc connects to an address, as the method DialContext of [net.Dialer] does.
type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func (o *Options) withDefaults() Options {
	var in Options
	if o != nil {
		in = *o
	}
	if in.Timeout <= 0 {
		in.Timeout = DefaultTimeout
	}
	if in.Cache <= 0 {
		in.Cache = DefaultCache
	}
	if in.Logger == nil {
		in.Logger = slog.Default()
	}
	if in.dial == nil {
		in.dial = new(net.Dialer).DialContext
	}
	return in
}

package tonlite

import (
	"log/slog"
	"time"
)

// Defaults of [Options].
const (
	DefaultTimeout = 5 * time.Second
	DefaultCache   = 1024
)

// Options configure a [Backend]. The zero value is safe in production.
type Options struct {
	// Timeout limits each query to one server and each attempt to connect. A server that
	// exceeds it is not used for a while and another one is queried, so a call may take a
	// multiple of Timeout. If there are several servers and the context of a call has less
	// than twice Timeout left, one server may take half of the remaining time, so that
	// another one can still respond. Timeout also limits how long a Follow waits at one
	// server for the next masterchain block before it tries another. Default, also if
	// negative: DefaultTimeout.
	Timeout time.Duration

	// Cache is the number of masterchain blocks whose shard blocks are kept in memory, about
	// 1 kB each. Four times as many masterchain blocks are kept without their shard blocks.
	// Default, also if negative: DefaultCache.
	Cache int

	// Unproven accepts masterchain blocks without checking signatures. A new head must be
	// readable and must lead back, block by block, to the head known before; a head that no
	// server has any more is dropped. Open logs a warning. If Unproven is false, Open returns
	// an error for a configuration without an init_block after the zero state. In both modes
	// shard blocks and balances are proven from masterchain blocks.
	Unproven bool

	// Logger receives warnings: about servers that are not used for a while because they failed or sent an invalid
	// response, about masterchain blocks that are dropped because no server has them, and, if Unproven is set, that
	// blocks are accepted without proof. Default: slog.Default().
	Logger *slog.Logger
}

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
	return in
}

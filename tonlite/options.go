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

// Options say how servers are asked. The zero value is safe in production.
type Options struct {
	// Timeout is the deadline of each query to one server, and of each attempt
	// to connect. A server that lets it pass is left alone for a while and
	// another one is asked, so a call may take a multiple of it. It is also how
	// long a server is let wait for the next masterchain block before another
	// one is tried. Default, also where it is negative: DefaultTimeout.
	Timeout time.Duration

	// Cache is for how many masterchain blocks the shard blocks that they
	// commit to are kept in memory, about 1 kB each; of masterchain blocks
	// alone four times as many are. Default, also where it is negative:
	// DefaultCache.
	Cache int

	// Unproven takes masterchain blocks at the servers' word: nobody's
	// signatures are checked. A new head must be readable and must lead back,
	// block by block, to the one known before; a head that no server has any
	// more is dropped. Open logs a warning. If Unproven is false, Open refuses a
	// configuration without an init_block past the zero state. Shard blocks and
	// balances are proven from masterchain blocks in both modes.
	Unproven bool

	// Logger receives servers that fail, answers that are refused, and the
	// warning of Unproven. Default: slog.Default().
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

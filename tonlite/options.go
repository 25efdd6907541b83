package tonlite

import (
	"io"
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

	// Unproven takes masterchain blocks at the word of the server that is
	// asked, as long as they fit the ones that they are next to, and proves
	// none. Without it Open refuses a configuration that has no init_block past
	// the zero state. All that is below masterchain blocks is checked either way.
	Unproven bool

	// Logger is told of servers that fail and of answers that are refused.
	// Default: nothing is logged.
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
		in.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return in
}

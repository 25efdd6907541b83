package natschain

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Defaults of [Options].
const (
	DefaultChain        = "chain"
	DefaultTimeout      = 5 * time.Second
	DefaultWriteTimeout = time.Minute
)

// Options configure the connection and the storage of a chain. The zero value is safe
// in production.
type Options struct {
	// Chain is the name of the chain. It determines the stream <chain>_blocks with the
	// subjects <chain>.blocks.>, the key-value bucket <chain>_balances, and the stream
	// <chain>_index with the subjects <chain>.index.>. Chain has at most 64 letters,
	// digits, - and _. Default: DefaultChain.
	Chain string

	// Connect contains options for nats.Connect: credentials, TLS, a name. They override
	// the options that Open sets: a lost connection is reestablished without a limit of
	// attempts (MaxReconnects(-1), every 250 ms), even if its credentials are rejected for
	// a while; it is pinged every 2 s; and nothing is printed.
	Connect []nats.Option

	// Create lets Open create the streams and the bucket if they do not exist. The index
	// has the same limits as the blocks. Open does not change what exists, except that it
	// allows atomic batches (allow_atomic) on the stream of blocks. If Create is nil, the
	// stream of blocks and the bucket must exist.
	Create *Storage

	// Logger receives warnings about missing features of a stream and about messages that
	// are not blocks. Default: slog.Default().
	Logger *slog.Logger

	// Timeout limits each read, with all its attempts, and each attempt to connect.
	// Default, also if negative: DefaultTimeout.
	Timeout time.Duration

	// WriteTimeout limits each call of a [Writer], with all its attempts. Default, also
	// if negative: DefaultWriteTimeout.
	WriteTimeout time.Duration
}

// Storage configures a new chain. From NATS 2.12 on, a new stream allows atomic batches,
// in which a [Writer] appends up to 512 blocks at once. NATS 2.11 ignores that setting,
// and blocks are appended one by one.
type Storage struct {
	// Replicas is the number of servers that store each message: 1, 3 or 5. Default: 1.
	Replicas int
	// MaxBytes is the maximum size of all blocks. Beyond it the oldest are deleted.
	// Default: unlimited.
	MaxBytes int64
	// MaxAge is the age at which blocks are deleted. If a chain has no new block for
	// MaxAge, it loses its newest block too, and subscriptions fail until the next block:
	// set MaxAge well above the longest such pause. Default: unlimited.
	MaxAge time.Duration
	// Memory stores everything in memory. Default: in files.
	Memory bool
	// Duplicates is how long the server remembers the ids of messages. A Writer never
	// appends a block twice, even if this is short. Default: the server's, 2 min.
	Duplicates time.Duration
}

func (o *Options) withDefaults() (Options, error) {
	var in Options
	if o != nil {
		in = *o
	}
	if in.Chain == "" {
		in.Chain = DefaultChain
	}
	if len(in.Chain) > 64 ||
		strings.Trim(in.Chain, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
		return in, errors.New("natschain: invalid Options.Chain: " +
			"it must consist of letters, digits, - and _, at most 64 of them")
	}
	if in.Logger == nil {
		in.Logger = slog.Default()
	}
	if in.Timeout <= 0 {
		in.Timeout = DefaultTimeout
	}
	if in.WriteTimeout <= 0 {
		in.WriteTimeout = DefaultWriteTimeout
	}
	return in, nil
}

// attempts is the number of attempts of a request within its deadline. A request that
// was in flight when a server stopped never gets a response.
const attempts = 4

// connect returns the options of nats.Connect, the host's options last. A connection that
// hangs must not delay calls beyond their deadline, and a lost connection must be
// reestablished, no matter how long that takes.
func (o *Options) connect() []nats.Option {
	return append([]nats.Option{
		nats.Name("chaingql"),
		nats.Timeout(o.Timeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, 500*time.Millisecond),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(2 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(2 * time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default prints; calls return their errors
	}, o.Connect...)
}

package natschain

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// DefaultChain is the default name of a chain; see [Options].
	DefaultChain = "chain"
	// DefaultTimeout is the default timeout of a read; see [Options].
	DefaultTimeout = 5 * time.Second
	// DefaultWriteTimeout is the default timeout of a [Writer] call; see [Options].
	DefaultWriteTimeout = time.Minute
)

// Options configures a [Backend]: its connection to NATS, and the streams and the bucket
// that store the chain. The zero value is safe for production.
type Options struct {
	// Chain is the name of the chain. It is part of the names of the block stream
	// <chain>_blocks with the subjects <chain>.blocks.>, the index stream <chain>_index
	// with the subjects <chain>.index.>, and the key-value bucket <chain>_balances. Chain
	// may contain at most 64 characters: letters, digits, - and _. Default: DefaultChain.
	Chain string

	// Connect contains options for nats.Connect, such as credentials, TLS or a client
	// name. They override the options that Open sets. With Open's options, a lost
	// connection is reestablished with an unlimited number of attempts (MaxReconnects(-1)),
	// 250 ms apart, even if the server rejects the credentials for a while. The connection
	// is pinged every 2 s, and nats.go prints no errors.
	Connect []nats.Option

	// Create makes Open create the streams and the bucket if they do not exist. The index
	// stream gets the same limits as the block stream. Open does not change existing
	// streams, except that it enables atomic batches (allow_atomic) on the block stream and
	// adds the epoch to its metadata. If Create is nil, Open fails if the block stream or
	// the bucket does not exist.
	Create *Storage

	// Logger receives warnings, for example if the stream does not allow atomic batches, or if
	// a message in the block stream is not a block. Default: slog.Default().
	Logger *slog.Logger

	// Timeout limits the duration of each read, including retries, and of each attempt to
	// connect. If it is zero or negative, DefaultTimeout applies.
	Timeout time.Duration

	// WriteTimeout limits the duration of each [Writer] call, including retries. If it is
	// zero or negative, DefaultWriteTimeout applies.
	WriteTimeout time.Duration
}

// Storage configures the streams and the bucket that [Open] creates for a new chain. A new
// block stream allows atomic batches, in which a [Writer] appends up to 512 blocks at once.
type Storage struct {
	// Replicas is the number of servers that store each message: 1, 3 or 5. Default: 1.
	Replicas int
	// MaxBytes is the maximum total size of the stored blocks, in bytes. When it is
	// exceeded, the server deletes the oldest blocks. Default: unlimited.
	MaxBytes int64
	// MaxAge is the age at which the server deletes a block. If no new block arrives for
	// MaxAge, even the newest block is deleted, and subscriptions fail until the next
	// block. Therefore set MaxAge well above the longest expected pause between blocks.
	// Default: unlimited.
	MaxAge time.Duration
	// Memory makes the servers store the chain in memory instead of in files. Use it only
	// for tests and short chains: to find an old block in memory, a server scans the chain
	// and meanwhile stores no block.
	Memory bool
	// Duplicates is how long the server remembers message IDs to detect duplicates. A
	// Writer never appends a block twice, even if this duration is short. Default: the
	// server's default, 2 min.
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
			"it may contain at most 64 characters: letters, digits, - and _")
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

// attempts is the number of times that a request is sent if the server never responds: each
// attempt waits for timeout/attempts. Several attempts are needed because a request
// that is in flight when a server stops never receives a response.
const attempts = 4

// connect returns the options for nats.Connect. The host's options come last, so that they
// override the others. With these options, a hanging connection does not delay calls beyond
// their deadline, and a lost connection is reestablished no matter how long that takes.
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
		// The default error handler prints errors, but all calls already return them.
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, o.Connect...)
}

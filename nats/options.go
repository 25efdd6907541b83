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

// Options say how a chain is reached and kept. The zero value is safe in
// production.
type Options struct {
	// Chain names what holds the chain: the stream <chain>_blocks with the
	// subjects <chain>.blocks.>, the key-value bucket <chain>_balances, and the
	// stream <chain>_index with the subjects <chain>.index.>. It has letters,
	// digits, - and _ alone. Default: DefaultChain.
	Chain string

	// Connect has what is to be said to nats.Connect, beside the URL:
	// credentials, TLS, a name. Without it the connection comes back for as long
	// as it takes (MaxReconnects(-1), each 250 ms), also where its credentials
	// are refused for a while; is tested every 2 s; and says nothing on its own.
	// An option that is given here overrides that.
	Connect []nats.Option

	// Create has Open make the streams and the bucket where they are missing, as
	// Storage says; the index has the same limits as the blocks. What is there is left
	// as it is, except that a stream which does not allow atomic batches (allow_atomic)
	// is changed to allow them. Nil: the stream of blocks and the bucket must be there.
	Create *Storage

	// Logger receives warnings: what a stream lacks, and messages of it that are no
	// blocks. Default: slog.Default().
	Logger *slog.Logger

	// Timeout is the deadline of each read, in all its attempts, and of each
	// attempt to connect. Default, also where it is negative: DefaultTimeout.
	Timeout time.Duration

	// WriteTimeout is the deadline of each call of a [Writer], in all its
	// attempts. Default, also where it is negative: DefaultWriteTimeout.
	WriteTimeout time.Duration
}

// Storage says how a new chain is kept. From NATS 2.12 on a new stream allows
// atomic batches, in which a [Writer] appends up to 512 blocks at once. Servers of
// 2.11 ignore that setting, and blocks are appended one by one.
type Storage struct {
	// Replicas is on how many servers each message is: 1, 3 or 5. Default: 1.
	Replicas int
	// MaxBytes is how many bytes of blocks are kept, and MaxAge for how long; the
	// oldest go first. Default: all of them, for ever. A chain that stands still
	// for MaxAge loses its newest block too, which a Backend must keep: subscriptions
	// then fail until the next block. Set MaxAge well above the longest such time.
	MaxBytes int64
	MaxAge   time.Duration
	// Memory keeps everything in memory. Default: in files.
	Memory bool
	// Duplicates is how long the server knows the ids of messages. A Writer
	// appends no block twice however short that is. Default: the server's, 2 min.
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
		return in, errors.New("natschain: Options.Chain is no name of a chain: " +
			"it may have letters, digits, - and _, at most 64 of them")
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

// attempts is how often a request that is not answered is made within its
// deadline: one that was under way when a server went down never is.
const attempts = 4

// connect is what nats.Connect is told, the host's own word last. A connection
// that hangs must not hold up calls for longer than they may take, and one that
// is lost must come back however long that takes.
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
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // calls return their errors
	}, o.Connect...)
}

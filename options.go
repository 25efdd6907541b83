package chaingql

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
)

// Version is the version of this library. Clients can query it as info.version.
const Version = "0.1.0"

// These are the default values of [Options]. For those of Limits, see [DefaultLimits].
const (
	DefaultKeepAliveInterval = 15 * time.Second
	DefaultWindowSize        = 1024
	DefaultStallTimeout      = 30 * time.Second
	DefaultRetryInterval     = 2 * time.Second
)

// Options configures a [Handler]. The zero value is safe in production. In every field, zero means the documented
// default. A negative number or duration turns the feature off, unless the field states another effect.
type Options struct {
	// Authorizer decides who may use which project. Default: every client may use every project, and New logs a
	// warning.
	Authorizer Authorizer

	// AllowedOrigins lists the web origins whose pages may call the API over HTTP (CORS) and WebSocket. Each is an
	// exact value such as scheme://host or scheme://host:port, or "*" for all origins. New panics if an origin is
	// malformed. Clients other than browsers send no Origin and are not affected. Default: only pages of the Handler's
	// own host.
	AllowedOrigins []string

	// Endpoints is the value of info.endpoints: the addresses at which clients can reach the service. Default: the host
	// and path of the request.
	Endpoints []string

	// Limits bounds what clients can request. Default: [DefaultLimits].
	Limits Limits

	// TrustedDocuments lists the documents that are served; all other documents are refused. A client sends the text of
	// a document, or its SHA-256 as in Apollo's persisted queries. New panics if a document is invalid. If the list is
	// empty but not nil, no document is served. Default: every document is served.
	TrustedDocuments []string

	// Schema adds fields and types of the host. Default: none.
	Schema SchemaExtension

	// KeepAliveInterval is the interval between WebSocket pings, between the ping messages of graphql-transport-ws, and
	// between comments on event streams. On graphql-ws sockets, the first ka message follows connection_ack, the second
	// one follows after KeepAliveInterval, and all others follow at intervals of a fifth of KeepAliveInterval (see
	// docs/protocol.md). If KeepAliveInterval is negative, none of these are sent. Default: DefaultKeepAliveInterval.
	KeepAliveInterval time.Duration

	// WindowSize is the number of recent blocks that are kept in memory, for queries and for subscribers that read more
	// slowly than blocks arrive. A negative number means the default too. Default: DefaultWindowSize.
	WindowSize int

	// WindowDuration is the time for which each new block is kept in memory, even if there are more than WindowSize
	// newer ones. Limits.WindowBytes bounds the memory of all kept blocks. Default: only WindowSize counts.
	WindowDuration time.Duration

	// StallTimeout is the time without a block from the Backend's Follow after which Follow counts as stalled. Hooks
	// and the log then report the stall, and queries read from the Backend instead of the window. Use several times
	// the usual interval between blocks. Default: DefaultStallTimeout.
	StallTimeout time.Duration

	// MaxCacheAge is the maximum time for which caches may keep a response without asking for it again. Set it if you
	// may have to recall pages of blocks, because nothing can recall a page that browsers keep for a year. Default: a
	// year for pages that are known to be complete.
	MaxCacheAge time.Duration

	// RetryInterval is the maximum wait before Follow is called again after a failure. The first wait is 100 to 200 ms,
	// and the wait doubles with each further failure. A successful query ends the wait early. If Follow then fails
	// again without yielding a block, queries do not end the next wait, so that they do not defeat the backoff. A
	// subscription that catches up waits in the same way before it repeats a read. Default: DefaultRetryInterval, also
	// for a negative duration.
	RetryInterval time.Duration

	// OutageTimeout is the time for which the block source may be lost, as in [Health], before subscriptions to blocks
	// end with SERVICE_UNAVAILABLE and the cursor to resume from. Their clients can then resume at another instance.
	// Subscriptions that begin during the outage end after the same time again. Set it only if other instances have
	// sources of their own or the network may cut off a single instance: if the database itself is down, the clients of
	// all instances reconnect again and again. Default: subscriptions wait for the source.
	OutageTimeout time.Duration

	// ConnectionLifetime limits the time for which a socket or an event stream stays open. Each one ends at a random
	// time between half of ConnectionLifetime and all of it, in the same way as during Shutdown: the client receives
	// SERVICE_UNAVAILABLE and its cursor, and can reconnect at once. This distributes the clients over all instances
	// again after some instances were restarted. Use at least several minutes. Default: no limit.
	ConnectionLifetime time.Duration

	// ShowCost adds extensions.cost to the response to each query. It has the numbers of Backend calls and of blocks
	// that were computed before the query ran. Limits.BackendCalls and Limits.QueryBlocks bound these numbers.
	ShowCost bool

	// DisableIntrospection refuses queries for __schema and __type.
	DisableIntrospection bool

	// Logger receives the Backend's errors with the ids that clients received, and the events that are listed at
	// [Hooks]. Default: slog.Default().
	Logger *slog.Logger

	// Hooks are called to report events, for metrics and traces. Default: none.
	Hooks Hooks
}

// or returns def if set is zero, and zero if set is negative.
func or[T int | int64 | time.Duration](set, def T) T {
	switch {
	case set == 0:
		return def
	case set < 0:
		return 0
	}
	return set
}

// withDefaults returns o with the default for each field that is zero. In the result, zero means no limit.
func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = slog.New(guard.LogHandler(o.Logger.Handler()))
	o.KeepAliveInterval = or(o.KeepAliveInterval, DefaultKeepAliveInterval)
	o.WindowSize = or(o.WindowSize, DefaultWindowSize)
	o.WindowDuration = or(o.WindowDuration, 0)
	o.StallTimeout = or(o.StallTimeout, DefaultStallTimeout)
	o.MaxCacheAge = or(o.MaxCacheAge, 0)
	o.RetryInterval = cmp.Or(max(0, o.RetryInterval), DefaultRetryInterval)
	o.Limits = o.Limits.inForce()
	return o
}

// trusted contains the documents that are served, by their SHA-256 in lower-case hex. If it is nil, every document is
// served.
type trusted map[string]string

// trust checks the host's TrustedDocuments and returns them by their hash. Without the check, an invalid document would
// not be noticed until a client sends it.
func (h *Handler) trust(documents []string) (trusted, error) {
	if documents == nil {
		return nil, nil
	}
	t := trusted{}
	for i, text := range documents {
		if errs := h.plans.Check(text); errs != nil {
			return nil, fmt.Errorf("chaingql: TrustedDocuments[%d]: %w", i, errs)
		}
		t[plan.Hash(text)] = text
	}
	return t, nil
}

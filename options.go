package chaingql

import (
	"log/slog"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// Version is the version of this library, and the value of info.version.
const Version = "0.1.0"

// Defaults of [Options]. For those of Limits, see [DefaultLimits].
const (
	DefaultKeepAliveInterval = 15 * time.Second
	DefaultWindowSize        = 1024
	DefaultStallTimeout      = 30 * time.Second
)

// Options configure a [Handler]. The zero value is safe in production. In every field, zero means the documented
// default. A negative number or duration turns the feature off, unless the field states another effect.
type Options struct {
	// Authorizer decides who may use which project. Default: everybody may use every project; New logs a warning.
	Authorizer Authorizer

	// AllowedOrigins lists the web origins whose pages may call the API, over HTTP (CORS) and WebSocket: exact values
	// such as scheme://host or scheme://host:port, or "*" for all. New panics if one is malformed. Clients other than
	// browsers send no Origin and are not affected. Default: only pages of the handler's own host.
	AllowedOrigins []string

	// Endpoints is the value of info.endpoints. Default: the host and path of the request.
	Endpoints []string

	// Limits bound what one client can request. Default: [DefaultLimits].
	Limits Limits

	// TrustedDocuments lists the only documents that are served. Clients send their text, or their SHA-256 as in
	// Apollo's persisted queries. New panics if one is not valid. An empty list that is not nil serves none. Default:
	// every document is served.
	TrustedDocuments []string

	// Schema adds fields and types of the host. Default: none.
	Schema SchemaExtension

	// KeepAliveInterval is the interval of WebSocket pings, of the ping messages of graphql-transport-ws, and of
	// comments on event streams. On graphql-ws sockets the first ka message follows connection_ack, the second one
	// follows after KeepAliveInterval, and all others at intervals of a fifth of it (see docs/protocol.md). If it is
	// negative, none of these are sent. Default: DefaultKeepAliveInterval.
	KeepAliveInterval time.Duration

	// WindowSize is the number of recent blocks kept in memory, for queries and for subscribers that read more slowly
	// than blocks arrive. Default, also if it is negative: DefaultWindowSize.
	WindowSize int

	// StallTimeout is the time without a block from the Backend's Follow after which the source counts as stalled:
	// hooks and log report it, and queries read from the Backend instead of the window. Use several times the usual
	// interval of blocks. Default: DefaultStallTimeout.
	StallTimeout time.Duration

	// ShowCost adds extensions.cost to the response of each query: the numbers of calls and blocks that [Limits]
	// bounds by BackendCalls and QueryBlocks, as computed before the query ran.
	ShowCost bool

	// DisableIntrospection refuses __schema and __type.
	DisableIntrospection bool

	// Logger receives errors of the Backend with the id that the client received, cut connections, and the events that
	// [Hooks] lists. Default: slog.Default().
	Logger *slog.Logger

	// Hooks report events, for metrics and traces. Default: none.
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

// withDefaults returns the options in force. In the result, zero means no limit.
func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = slog.New(guard.LogHandler(o.Logger.Handler()))
	o.KeepAliveInterval = or(o.KeepAliveInterval, DefaultKeepAliveInterval)
	o.WindowSize = or(o.WindowSize, DefaultWindowSize)
	o.StallTimeout = or(o.StallTimeout, DefaultStallTimeout)
	o.Limits = o.Limits.inForce()
	return o
}

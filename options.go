package chaingql

import (
	"log/slog"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql/internal/plan"
)

// Version is the library's version, as info.version shows it.
const Version = "0.1.0"

// Defaults of [Options] and [Limits].
const (
	DefaultKeepAlive = 15 * time.Second
	DefaultWindow    = 1024
	DefaultSilence   = 30 * time.Second

	DefaultBodyBytes           = 128 << 10
	DefaultDocumentBytes       = 32 << 10
	DefaultTokens              = 2000
	DefaultDepth               = 20
	DefaultFields              = 1500
	DefaultAliases             = 50
	DefaultDirectives          = 32
	DefaultSameName            = 8
	DefaultOperations          = 8
	DefaultFragments           = 32
	DefaultVariables           = 32
	DefaultListItems           = 100
	DefaultCalls               = 50
	DefaultBlocks              = 2500
	DefaultAnswerBytes         = 4 << 20
	DefaultCacheBytes          = 32 << 20
	DefaultMessageBytes        = 64 << 10
	DefaultSockets             = 10_000
	DefaultMessageRate         = 200
	DefaultSocketSubscriptions = 256
	DefaultSocketQueries       = 32
	DefaultRequests            = 1024
	DefaultInFlight            = 64
	DefaultPendingBodyBytes    = 16 << 20
	DefaultPendingAnswerBytes  = 64 << 20
	DefaultPendingSocketBytes  = 1 << 20
	DefaultSubscriptions       = 100_000
	DefaultIDBytes             = 128
	DefaultSubscriptionBytes   = 256 << 20
	DefaultVariableBytes       = 4 << 10
	DefaultBodyTimeout         = 5 * time.Second
	DefaultWriteTimeout        = 5 * time.Second
	DefaultBackendTimeout      = 5 * time.Second
)

// Options are what a [Handler] can be told beside its Backend. The zero value
// is safe in production. In every field zero stands for the default named
// there, and a negative number or duration turns the thing off.
type Options struct {
	// Authorizer says who may use which project. Default: everybody may use
	// every project, and the log says so once.
	Authorizer Authorizer

	// AllowedOrigins are the web origins whose pages may call the API, by CORS
	// and by WebSocket alike: exact, as scheme://host or scheme://host:port,
	// or "*" for all; New panics on anything else. Default: pages of the handler's own host only. Callers
	// that are not browsers send no Origin and are not affected.
	AllowedOrigins []string

	// Endpoints is what info.endpoints shows. Default: the host and path of
	// the request.
	Endpoints []string

	// Limits bound what one client can ask for. Default: those of [Limits].
	Limits Limits

	// TrustedDocuments are the only documents served: clients send their text,
	// or their SHA-256 as Apollo's persisted queries do. New panics on one that
	// is not valid. Default: every document is served. A list that is empty but
	// not nil serves none.
	TrustedDocuments []string

	// QueryFields are further fields of Query, by their names, as graphql-go has
	// them: with types, arguments and resolvers of the host's, down to scalars.
	// They are served as the built-in fields are. New copies the map; what is in
	// it must not be changed any more. Default: none.
	//
	// A resolver gets what graphql-go would give it: Source (nil, a map, for a
	// field of Query), Args with defaults and with what enums mean, Info, and in
	// Context what the Authorizer put there; it must not change them. It gives a
	// value, or a thunk (func() (any, error)), which is called when all beneath the
	// same field of Query that could be resolved without thunks has been, so that a
	// loader can ask for many at once. A query's resolvers run one after the other
	// on one goroutine; those of other queries run at the same time.
	//
	// Each field of Query takes one of the turns of Limits.InFlight until all that
	// is asked for beneath it has been resolved, and Limits.BackendTimeout bounds
	// that time: Context is done then, a resolver must return, and the client is
	// told TIMEOUT. Limits.AnswerBytes counts 32 bytes more for each value.
	//
	// An error that has extensions (a method Extensions() map[string]any, as
	// graphql-go's ExtendedError) is told to the client: its text, cut at 300
	// bytes, and its extensions, among them "code", INTERNAL_SERVER_ERROR where it
	// is no string. Every other error, and a panic, is masked and logged, and so is
	// every error of a built-in field, whatever methods it has. So is a
	// value that its type cannot hold, such as 1<<40 as an Int or a string that an
	// enum does not have, where graphql-go would change it or make it null.
	//
	// New panics on names that are taken (a type's, too: Block, for one), on types
	// that make no sense, and on one called Mutation. The host's types cannot lead
	// to the built-in ones. The fields of a type are shown in the order of their
	// names. Answers that have a field of the host's may not be kept by caches.
	QueryFields graphql.Fields

	// SubscriptionFields are further fields of Subscription, by their names, served
	// by the transports that serve blocks, within the same limits. Default: none.
	SubscriptionFields map[string]SubscriptionField

	// Types are further types, which no field leads to: objects that an interface
	// of QueryFields or SubscriptionFields may turn out to be. Default: none.
	Types []graphql.Type

	// Costs price fields of the host's, of Query and of any object, by type and
	// name, such as "Query.transactions" or "Wallet.transactions". Each is called
	// before a query runs, with the arguments that the resolver will get, from any
	// number of goroutines, and may be called several times for one query; it must
	// not block. New panics on a name that is no field of the host's, or one of an
	// interface: it is its objects' fields that have a price. Default: one call for
	// a field of Query, nothing for others.
	Costs map[string]func(args map[string]any) Cost

	// KeepAlive is the interval of WebSocket pings, of graphql-transport-ws's ping
	// messages and of comments on event streams. On graphql-ws sockets the first ka
	// follows the ack, the second KeepAlive later, and all others at a fifth of it:
	// see docs/protocol.md. Negative: none. Default: DefaultKeepAlive.
	KeepAlive time.Duration

	// Window is how many recent blocks are kept, for subscribers that read
	// slower than blocks come and for queries. Default, also for a negative
	// number: DefaultWindow.
	Window int

	// Silence is how long the Backend's Follow may give no block before that
	// is reported (Hooks, log, info.latency) and queries ask the Backend
	// instead of the window. It should be several times the chain's usual
	// pace. Default: DefaultSilence.
	Silence time.Duration

	// ShowCost adds to each query's answer what it was priced at before it ran:
	// extensions.cost, with calls of the Backend and blocks, which
	// [Limits].Calls and Blocks bound.
	ShowCost bool

	// DisableIntrospection refuses __schema and __type.
	DisableIntrospection bool

	// Logger gets what a host should know: failures of the backend with the id
	// that the client was shown, connections that were cut, and what [Hooks]
	// lists. Default: slog.Default().
	Logger *slog.Logger

	// Hooks tell the host of what happens, for metrics and traces. Default:
	// none.
	Hooks Hooks
}

// Limits bound what strangers can ask for. What exceeds one is refused with a
// GraphQL error that names it and has the code LIMIT_EXCEEDED, except where the
// field says otherwise. Zero is the default, negative turns a limit off.
type Limits struct {
	BodyBytes         int // of a request's body (413). Default: 128 KiB.
	DocumentBytes     int // of a document. Default: 32 KiB.
	Tokens            int // of a document, comments included. Default: 2,000.
	Depth             int // nested selections, lists, objects and list types, and levels of JSON. Default: 20.
	Fields            int // of an operation, its fragments written out. Default: 1,500.
	Aliases           int // in a document. Default: 50.
	Directives        int // in a document. Default: 32.
	SameName          int // fields of one response name in one written selection set. Default: 8.
	Operations        int // in a document. Default: 8.
	Fragments         int // in a document. Default: 32.
	Variables         int // of an operation. Default: 32.
	ListItems         int // of one list, in a document or in variables. Default: 100.
	Calls             int // of the Backend, that a query costs at most; one for all balances where it is a [BalanceBatcher]; a cursor that is too old takes one more. Default: 50.
	Blocks            int // that a query costs at most, without the one more that each page looks for. Default: 2,500.
	AnswerBytes       int // of an answer's data. Default: 4 MiB.
	CacheBytes        int // of memory that compiled documents are kept in. Default: 32 MiB. Negative keeps none: no query persists.
	MessageBytes      int // of one message on a socket (close code 1009). Default: 64 KiB.
	Sockets           int // open at once, and as many event streams (503). Default: 10,000.
	IDBytes           int // of an operation's id on a socket. Default: 128.
	Subscriptions     int // open at once, on all sockets and event streams. Default: 100,000.
	SubscriptionBytes int // of memory that all of them keep: compiled documents, default values, variables, filters, answers not taken yet (an eighth is left to those about blocks) and, for a host's own fields, goroutines of 8 KiB. Default: 256 MiB.
	VariableBytes     int // of one subscription's variables, and literals in their place, as JSON. Default: 4 KiB.
	InFlight          int // calls of the Backend for queries at once; further ones wait for half of BackendTimeout at most (503). Default: 64.
	// MessageRate is the maximum number of messages, pings, pongs and empty fragments
	// a second on one socket, three times as many at once. 16 other fragments count as one
	// message. The time in which the socket is not read counts as if they had come in
	// it, up to 20 s. Beyond the limit the socket is closed with 1008. Default: 200.
	MessageRate int

	// SocketSubscriptions is the maximum number of subscriptions open at once on one
	// socket. A further one is refused with LIMIT_EXCEEDED. Default: 256.
	SocketSubscriptions int

	// SocketQueries is the maximum number of queries that run at once on one socket,
	// up to when their answers are written. If there is a further one, nothing more is
	// read from the socket until one of them has ended. After BackendTimeout plus
	// WriteTimeout the further one is refused with SERVICE_UNAVAILABLE, and the socket
	// is read again. Default: 32.
	SocketQueries int

	// Requests is the maximum number of queries that run at once, over HTTP and on
	// sockets, and of calls of the Authorizer for HTTP requests. Requests whose body
	// is still arriving, and answers that wait for their client, do not count.
	// Beyond it a query is refused with SERVICE_UNAVAILABLE (503). Default: 1,024.
	Requests int

	// PendingBodyBytes is the maximum memory of bodies that are arriving, at least
	// 4 KiB for each. If a further one does not fit, those that have taken longest
	// are ended with 503. Default: 16 MiB.
	PendingBodyBytes int

	// PendingAnswerBytes is the maximum memory of answers that are being produced or
	// wait for their client, over HTTP, on event streams and on sockets, and of long
	// messages on sockets of which a part has come. If it is reached, the clients that are furthest behind a rate of 256 KiB a second are cut:
	// for a socket or an event stream as many as it takes, for an answer over HTTP only
	// those that are a second behind. If that is not enough, the query is refused with
	// 503. Answers of more than 64 KiB leave an eighth of it to smaller ones.
	// Default: 64 MiB.
	PendingAnswerBytes int

	// PendingSocketBytes is the size of the answers to queries that wait on one
	// socket beyond which nothing more is read from it and no further query is
	// started. Queries that run already may exceed it. Default: 1 MiB.
	PendingSocketBytes int

	BodyTimeout    time.Duration // for a request's body to come whole (408). Default: 5 s.
	WriteTimeout   time.Duration // for an answer to be taken; the connection is cut. Default: 5 s.
	BackendTimeout time.Duration // for one call of the Backend (TIMEOUT). Default: 5 s.
}

// or picks what is in force: a default for zero, zero for what is turned off.
func or[T int | time.Duration](set, def T) T {
	switch {
	case set == 0:
		return def
	case set < 0:
		return 0
	}
	return set
}

// withDefaults returns the options in force; zero now means no limit.
func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	o.Logger = slog.New(calm{o.Logger.Handler()})
	o.KeepAlive = or(o.KeepAlive, DefaultKeepAlive)
	o.Window = or(o.Window, DefaultWindow)
	o.Silence = or(o.Silence, DefaultSilence)
	l := &o.Limits
	for _, limit := range []struct {
		set *int
		def int
	}{
		{&l.BodyBytes, DefaultBodyBytes}, {&l.DocumentBytes, DefaultDocumentBytes}, {&l.Tokens, DefaultTokens},
		{&l.Depth, DefaultDepth}, {&l.Fields, DefaultFields}, {&l.Aliases, DefaultAliases},
		{&l.Directives, DefaultDirectives}, {&l.SameName, DefaultSameName}, {&l.Operations, DefaultOperations},
		{&l.Fragments, DefaultFragments}, {&l.Variables, DefaultVariables}, {&l.ListItems, DefaultListItems},
		{&l.Calls, DefaultCalls}, {&l.Blocks, DefaultBlocks}, {&l.AnswerBytes, DefaultAnswerBytes}, {&l.CacheBytes, DefaultCacheBytes}, {&l.MessageBytes, DefaultMessageBytes}, {&l.Sockets, DefaultSockets},
		{&l.MessageRate, DefaultMessageRate},
		{&l.SocketSubscriptions, DefaultSocketSubscriptions}, {&l.SocketQueries, DefaultSocketQueries}, {&l.Requests, DefaultRequests}, {&l.InFlight, DefaultInFlight},
		{&l.PendingBodyBytes, DefaultPendingBodyBytes}, {&l.PendingAnswerBytes, DefaultPendingAnswerBytes}, {&l.PendingSocketBytes, DefaultPendingSocketBytes},
		{&l.IDBytes, DefaultIDBytes}, {&l.Subscriptions, DefaultSubscriptions}, {&l.SubscriptionBytes, DefaultSubscriptionBytes}, {&l.VariableBytes, DefaultVariableBytes},
	} {
		*limit.set = or(*limit.set, limit.def)
	}
	l.BodyTimeout = or(l.BodyTimeout, DefaultBodyTimeout)
	l.WriteTimeout = or(l.WriteTimeout, DefaultWriteTimeout)
	l.BackendTimeout = or(l.BackendTimeout, DefaultBackendTimeout)
	return o
}

// forPlans are the limits that concern documents.
func (o *Options) forPlans() plan.Limits {
	l := &o.Limits
	return plan.Limits{
		Document: l.DocumentBytes, Tokens: l.Tokens, Depth: l.Depth, Fields: l.Fields, Aliases: l.Aliases,
		Directives: l.Directives, SameName: l.SameName, Operations: l.Operations, Fragments: l.Fragments,
		Variables: l.Variables, ListItems: l.ListItems, Calls: l.Calls, Blocks: l.Blocks, Answer: l.AnswerBytes, CacheBytes: l.CacheBytes, NoIntrospect: o.DisableIntrospection,
	}
}

package chaingql

import (
	"reflect"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
)

// Limits bound what clients can request. A request that exceeds one is refused with a GraphQL error that names the
// limit and has the code LIMIT_EXCEEDED, unless the field states another effect. Zero means the default; a negative
// number turns the limit off.
type Limits struct {
	// BodyBytes is the maximum size of a request's body, or of the query of its URL (413). Default: 128 KiB.
	BodyBytes int

	// DocumentBytes is the maximum size of a document. Default: 32 KiB.
	DocumentBytes int

	// Tokens is the maximum number of tokens in a document, comments included, and of values in the lists and objects
	// of an operation's variables, defaults included. Default: 2,000.
	Tokens int

	// Depth is the maximum nesting of selections, lists, objects and list types, and of JSON. Default: 20.
	Depth int

	// Fields is the maximum number of fields of an operation after fragments are expanded. Default: 1,500.
	Fields int

	// Aliases is the maximum number of aliases in a document. Default: 50.
	Aliases int

	// Directives is the maximum number of directives in a document. Default: 32.
	Directives int

	// FieldRepeats is the maximum number of fields with the same response name in one selection set,
	// before fragments are expanded. Default: 8.
	FieldRepeats int

	// Operations is the maximum number of operations in a document. Default: 8.
	Operations int

	// Fragments is the maximum number of fragment definitions in a document. Default: 32.
	Fragments int

	// Variables is the maximum number of variables of an operation. Default: 32.
	Variables int

	// ListItems is the maximum number of items of one list, in a document or in variables. Default: 100.
	ListItems int

	// BackendCalls is the maximum number of Backend calls that one query may need. If the Backend is a
	// [BalanceBatcher], all balances count as one call. A page whose cursor is too old needs one call more than
	// counted. Default: 50.
	BackendCalls int

	// QueryBlocks is the maximum number of blocks that one query may request. The additional block that each page
	// reads, to learn whether there are more, is not counted. Default: 2,500.
	QueryBlocks int

	// ResponseBytes is the maximum size of the data of a response. Default: 4 MiB.
	ResponseBytes int

	// CacheBytes is the maximum memory for compiled documents; the least recently used are evicted. If it is negative,
	// none are kept, and persisted queries do not work. Default: 32 MiB.
	CacheBytes int

	// MessageBytes is the maximum size of one message on a socket (close code 1009). Default: 64 KiB.
	MessageBytes int

	// Connections is the maximum number of open sockets, and also of open event streams (503). Default: 10,000.
	Connections int

	// IDBytes is the maximum size of the id of an operation on a socket, escapes included. Default: 128.
	IDBytes int

	// Subscriptions is the maximum number of open subscriptions on all sockets and event streams. Default: 100,000.
	Subscriptions int

	// SubscriptionBytes is the maximum memory that all subscriptions together may keep: compiled documents, default
	// values, variables, filters, responses waiting to be sent (an eighth is left to those about blocks), and 8 KiB for
	// the goroutine of a subscription to a field that the host added. Default: 256 MiB.
	SubscriptionBytes int

	// VariableBytes is the maximum size of one subscription's variables, and of the literals in its document, as JSON.
	// Default: 4 KiB.
	VariableBytes int

	// InFlight is the maximum number of concurrent Backend calls for queries. Further calls wait for at most half of
	// BackendTimeout, and then fail with SERVICE_UNAVAILABLE (503). Default: 64.
	InFlight int

	// MessageRate is the maximum number of messages, pings, pongs and empty fragments per second on one socket, with
	// bursts of three times that number. 16 other fragments count as one message. Messages that arrived while the
	// socket was not read are counted over that time, up to 20 s. Beyond the limit the socket is closed with code
	// 1008. Default: 200.
	MessageRate int

	// SocketSubscriptions is the maximum number of open subscriptions on one socket. Default: 256.
	SocketSubscriptions int

	// SocketQueries is the maximum number of queries in progress on one socket, until their responses are written. A
	// further query waits, and nothing else is read from the socket, until one of them has ended. If it waits for
	// longer than BackendTimeout plus WriteTimeout, it is refused with SERVICE_UNAVAILABLE, and the socket is read
	// again. Default: 32.
	SocketQueries int

	// Requests is the maximum number of queries that run at the same time, over HTTP and on sockets, and of
	// Authorizer calls for HTTP requests. It does not count requests whose body is still arriving, or responses that
	// wait for their client. Requests whose documents must be compiled leave a quarter of it to others. Beyond it a
	// query is refused with SERVICE_UNAVAILABLE (503). Default: 1,024.
	Requests int

	// PendingBodyBytes is the maximum memory of arriving bodies, each counted with at least 4 KiB. If another body does
	// not fit, the slowest ones are ended with 503. Default: 16 MiB.
	PendingBodyBytes int

	// PendingResponseBytes is the maximum memory of responses that are produced or wait for their client, over HTTP, on
	// event streams and on sockets, and of long messages on sockets that have arrived in part. When it is reached,
	// clients that receive less than 256 KiB per second are cut, the slowest first. A new response on a socket or an
	// event stream cuts them at once; one over HTTP only if they are a second behind that rate, or a tenth of a
	// second if it has at most 64 KiB. If that frees too little, the new response is refused with 503. Responses of
	// more than 64 KiB leave an eighth of it to smaller ones. Default: 64 MiB.
	PendingResponseBytes int

	// PendingSocketBytes is the size of waiting query responses on one socket beyond which nothing more is read from it
	// and no further query is started. Queries in progress may exceed it. Default: 1 MiB.
	PendingSocketBytes int

	// BodyTimeout is the maximum time until the body of a request has arrived (408). Default: 5 s.
	BodyTimeout time.Duration

	// WriteTimeout is the maximum time until the client has received a response. Beyond it the connection is cut.
	// Default: 5 s.
	WriteTimeout time.Duration

	// BackendTimeout is the maximum duration of one Backend call (TIMEOUT). Default: 5 s.
	BackendTimeout time.Duration
}

// DefaultLimits returns the limits that are in force if [Limits] sets no others.
func DefaultLimits() Limits {
	return Limits{
		BodyBytes:            128 << 10,
		DocumentBytes:        32 << 10,
		Tokens:               2000,
		Depth:                20,
		Fields:               1500,
		Aliases:              50,
		Directives:           32,
		FieldRepeats:         8,
		Operations:           8,
		Fragments:            32,
		Variables:            32,
		ListItems:            100,
		BackendCalls:         50,
		QueryBlocks:          2500,
		ResponseBytes:        4 << 20,
		CacheBytes:           32 << 20,
		MessageBytes:         64 << 10,
		Connections:          10_000,
		MessageRate:          200,
		SocketSubscriptions:  256,
		SocketQueries:        32,
		Requests:             1024,
		InFlight:             64,
		PendingBodyBytes:     16 << 20,
		PendingResponseBytes: 64 << 20,
		PendingSocketBytes:   1 << 20,
		Subscriptions:        100_000,
		IDBytes:              128,
		SubscriptionBytes:    256 << 20,
		VariableBytes:        4 << 10,
		BodyTimeout:          5 * time.Second,
		WriteTimeout:         5 * time.Second,
		BackendTimeout:       5 * time.Second,
	}
}

// inForce returns l with the defaults for zero. In the result, zero means no limit.
func (l Limits) inForce() Limits {
	set, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(DefaultLimits())
	for i := range set.NumField() {
		set.Field(i).SetInt(or(set.Field(i).Int(), defaults.Field(i).Int()))
	}
	return l
}

// forPlans returns the options of package plan: limits of documents, execution and the cache.
func (o *Options) forPlans() plan.Limits {
	l := &o.Limits
	return plan.Limits{
		Document: l.DocumentBytes, Tokens: l.Tokens, Depth: l.Depth, Fields: l.Fields, Aliases: l.Aliases,
		Directives: l.Directives, FieldRepeats: l.FieldRepeats, Operations: l.Operations, Fragments: l.Fragments,
		Variables: l.Variables, ListItems: l.ListItems, Calls: l.BackendCalls, Blocks: l.QueryBlocks,
		Answer: l.ResponseBytes, CacheBytes: l.CacheBytes, NoIntrospect: o.DisableIntrospection, ShowCost: o.ShowCost,
	}
}

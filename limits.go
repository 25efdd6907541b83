package chaingql

import (
	"reflect"
	"runtime"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
)

// Limits bounds what clients can request. A request that exceeds a limit is refused with a GraphQL error that names the
// limit and has the code LIMIT_EXCEEDED, unless the field states another effect. Zero means the default. A negative
// number turns the limit off.
type Limits struct {
	// BodyBytes is the maximum size of a request's body, or of the query string of its URL. A larger one is refused
	// with status 413. Default: 128 KiB.
	BodyBytes int

	// DocumentBytes is the maximum size of a document. Default: 32 KiB.
	DocumentBytes int

	// Tokens is the maximum number of tokens in a document, including comments. It is also the maximum number of values
	// in the lists and objects of an operation's variables, and of those in the arguments that its document passes to
	// fields of the host, including default values. Default: 2,000.
	Tokens int

	// Depth is the maximum nesting depth of selections, lists, objects and list types in a document, and of arrays and
	// objects in JSON. Default: 20.
	Depth int

	// Fields is the maximum number of fields in an operation after fragments are expanded. Default: 1,500.
	Fields int

	// Aliases is the maximum number of aliases in a document. Default: 50.
	Aliases int

	// Directives is the maximum number of directives in a document. Default: 32.
	Directives int

	// FieldRepeats is the maximum number of fields with the same response name in one selection set, before fragments
	// are expanded. Default: 8.
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
	// [BalanceBatcher], all balances count as one call. A page whose cursor is too old causes one more call, which is
	// not counted. Default: 50.
	BackendCalls int

	// QueryBlocks is the maximum number of blocks that one query may request. For each page, the Handler reads one more
	// block to learn whether there are more; that block is not counted. Default: 2,500.
	QueryBlocks int

	// ResponseBytes is the maximum size of the data in a response. A response that exceeds it has an error and no data.
	// Default: 4 MiB.
	ResponseBytes int

	// CacheBytes is the maximum memory for compiled documents. When it is full, the least recently used documents are
	// evicted, first those that were used only once. If it is negative, no documents are kept, and persisted queries do
	// not work. Default: 32 MiB.
	CacheBytes int

	// MessageBytes is the maximum size of one message from a client on a socket. If a message is larger, the socket is
	// closed with code 1009. Default: 64 KiB.
	MessageBytes int

	// Connections is the maximum number of open sockets. It is also, separately, the maximum number of open event
	// streams. Further connections are refused with status 503. The process must be allowed to open more files
	// (RLIMIT_NOFILE): otherwise New logs a warning. Connections are refused while fewer than 64 files, or a quarter of
	// RLIMIT_NOFILE if that is less, are left. Default: 10,000.
	Connections int

	// IDBytes is the maximum size of an operation's id in a message on a socket, including JSON escapes. Default: 128
	// bytes.
	IDBytes int

	// Subscriptions is the maximum number of open subscriptions on all sockets and event streams together. Default:
	// 100,000.
	Subscriptions int

	// SubscriptionBytes is the maximum memory that all subscriptions together may keep: compiled documents, default
	// values, variables, filters, responses that wait to be sent, and 8 KiB for the goroutine of each subscription to a
	// field that the host added. An eighth of the memory is reserved for waiting responses with blocks. When less than
	// half of the rest is free, the subscriptions of one client may not hold more than 1/128 of what is free, but
	// always 16 KiB. The same holds for its unsent events of fields that the host added, except that one of them may
	// always wait. Default: 256 MiB.
	SubscriptionBytes int

	// VariableBytes is the maximum size, as JSON, of one subscription's variables together with the literals in its
	// document. Default: 4 KiB.
	VariableBytes int

	// WindowBytes is the maximum memory of the recent blocks that Options.WindowSize and Options.WindowDuration keep.
	// Beyond it the oldest of them are dropped, and clients read them from the Backend. A block takes about 1,250
	// bytes. Default: 64 MiB.
	WindowBytes int

	// InFlight is the maximum number of concurrent Backend calls for queries, and also that of the host's own fields in
	// queries. At most three eighths of the calls are for pages, a quarter for single blocks, and a quarter for several
	// balances. If InFlight is less than 8, all of them may be of one kind. Of each of these kinds, and of the fields,
	// one address may have as many as are free, in addition to an eighth. Further calls and fields wait for at most
	// half of BackendTimeout. Then they fail with SERVICE_UNAVAILABLE (over HTTP with status 503). The addresses of
	// clients with waiting calls receive slots in turns. At most eleven sixteenths of Requests wait like this or for
	// the Backend, so that other requests are still served, and a higher InFlight has no effect. Of these places, one
	// address may have as many as are free. Further queries fail at once with SERVICE_UNAVAILABLE. Default: 64. If the
	// Backend is a CallLimiter, this default also means at most as many calls as its limit.
	InFlight int

	// MessageRate is the maximum number of messages, pings, pongs and empty fragments per second from the client of one
	// socket, with bursts of three times that number. 16 fragments that are not empty count as one message. If messages
	// arrived while the Handler did not read the socket, they count as spread over that time, up to 20 s. Beyond the
	// limit the socket is closed with code 1008. Default: 200.
	MessageRate int

	// SocketSubscriptions is the maximum number of open subscriptions on one socket. Default: 256.
	SocketSubscriptions int

	// SocketQueries is the maximum number of queries in progress on one socket. A query is in progress until its
	// response has been written. A further query waits until one of the others has ended, and meanwhile the Handler
	// reads nothing from the socket. If the query waits longer than BackendTimeout plus WriteTimeout, or if its memory
	// is needed while PendingResponseBytes is reached, it is refused with SERVICE_UNAVAILABLE, and the Handler reads
	// the socket again. Default: 32.
	SocketQueries int

	// Requests is the maximum number of queries that run at the same time over HTTP and on sockets. Authorizer calls
	// for HTTP requests are counted too. Those for connection_init are counted separately, up to the same number. A
	// further one waits for at most BackendTimeout, because many clients may reconnect at once. Requests with a body
	// that is still arriving and responses that wait for their client are not counted, except for the first ones on
	// each processor: together at most a sixteenth of the limit. At most eleven sixteenths of the limit wait for the
	// Backend, an eighth for the preparation of small requests, and a sixteenth for that of large ones, but at least
	// one request each. The last eighth is left to queries whose documents are already compiled and that need no
	// Backend call. At most half of the limit may be queries for more than 100 blocks, until they wait for the Backend,
	// because they take long even without. One address may have as many queries of each of these kinds as are free.
	// Beyond the limit a query is refused with SERVICE_UNAVAILABLE (over HTTP with status 503), and so is one whose
	// preparation does not begin within 5 s. Default: 1,024.
	Requests int

	// PendingBodyBytes is the maximum memory of arriving bodies. Each body counts with at least 4 KiB. If another body
	// does not fit, the bodies that began to arrive first are refused with status 503: first those of addresses whose
	// bodies take more than an eighth, and then all. Those that have announced at most 16 KiB count as if they had
	// begun a second later. Default: 16 MiB.
	PendingBodyBytes int

	// PendingResponseBytes is the maximum memory of responses that are being produced or wait for their client, over
	// HTTP, on event streams and on sockets. Long messages on sockets that have arrived only in part are counted too.
	// An eighth of the memory is reserved for responses of at most 64 KiB. At most half is for queries that wait for
	// the Backend and have produced more than 16 KiB of data. Beyond it, their next fields that need the Backend fail
	// with SERVICE_UNAVAILABLE. Seven queries of 4 MiB can fill this half. It does not bound the values of a host's
	// field while its thunks wait: lists with thunks should have at most a few hundred items.
	//
	// If a new response does not fit, clients that receive less than 256 KiB per second are disconnected, beginning
	// with the largest lag. The lag is the time since a client's response began, minus the time that the bytes it has
	// received take at that rate. For a response on a socket or an event stream, any lag is enough. For a response
	// over HTTP, the lag must be at least one second, or a tenth of a second if the response has at most 64 KiB. If
	// that frees too little, the new response is refused with SERVICE_UNAVAILABLE (over HTTP with status 503), unless
	// it is sent over HTTP and has at most 4 KiB: a refusal needs as much memory. Default: 64 MiB.
	PendingResponseBytes int

	// PendingSocketBytes is the maximum size of unsent query responses on one socket. Beyond it the Handler reads
	// nothing more from the socket and starts no further query. Queries in progress may exceed it. Default: 1 MiB.
	PendingSocketBytes int

	// BodyTimeout is the maximum time in which the body of a request must arrive. After it the request is refused with
	// status 408. Default: 5 s.
	BodyTimeout time.Duration

	// WriteTimeout is the maximum time without progress while a client receives a response. After it the connection is
	// cut. A part of 16 KiB counts as progress. For the whole response, the client has WriteTimeout plus one second per
	// 16 KiB. Default: 5 s.
	WriteTimeout time.Duration

	// BackendTimeout is the maximum duration of one Backend call. After it the client receives the code TIMEOUT.
	// Default: 5 s.
	BackendTimeout time.Duration
}

// DefaultLimits returns the default values of [Limits].
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
		WindowBytes:          64 << 20,
		BodyTimeout:          5 * time.Second,
		WriteTimeout:         5 * time.Second,
		BackendTimeout:       5 * time.Second,
	}
}

// inForce returns l with the default for each field that is zero. In the result, zero means no limit.
func (l Limits) inForce() Limits {
	set, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(DefaultLimits())
	for i := range set.NumField() {
		set.Field(i).SetInt(or(set.Field(i).Int(), defaults.Field(i).Int()))
	}
	return l
}

// forPlans returns the limits that package plan enforces: those on documents, their execution and their cache.
func (o *Options) forPlans() plan.Limits {
	l := &o.Limits
	return plan.Limits{
		Document: l.DocumentBytes, Tokens: l.Tokens, Depth: l.Depth, Fields: l.Fields, Aliases: l.Aliases,
		Directives: l.Directives, FieldRepeats: l.FieldRepeats, Operations: l.Operations, Fragments: l.Fragments,
		Variables: l.Variables, ListItems: l.ListItems, Calls: l.BackendCalls, Blocks: l.QueryBlocks,
		Answer: l.ResponseBytes, CacheBytes: l.CacheBytes, NoIntrospect: o.DisableIntrospection, ShowCost: o.ShowCost,
	}
}

const (
	// reservedBytes is the maximum size of the body and of the response's buffer of a request in a reserve that no
	// budget counts, and of a response that is sent even if the budget has no room for it.
	reservedBytes = 4 << 10

	// maxReserve is the maximum number of requests in the reserve of one processor.
	maxReserve = 32

	// reserveDivisor is the divisor of a limit for the part that belongs to all reserves together.
	reserveDivisor = 16
)

// takeReserve takes the reserves of all processors out of l, and returns the number of requests in each of them. The
// first HTTP requests on each processor have a slot of Requests and reservedBytes of both budgets in advance, so that
// they change no counter that all processors share. Limits that are too small are not divided.
func (l *Limits) takeReserve() (requests int) {
	processors := runtime.GOMAXPROCS(0)
	requests = maxReserve
	parts := []struct {
		limit *int // 0 means no limit
		each  int
	}{{&l.Requests, 1}, {&l.PendingBodyBytes, reservedBytes}, {&l.PendingResponseBytes, reservedBytes}}
	for _, p := range parts {
		if *p.limit > 0 {
			requests = min(requests, *p.limit/p.each/reserveDivisor/processors)
		}
	}
	for _, p := range parts {
		if *p.limit > 0 {
			*p.limit -= requests * processors * p.each
		}
	}
	return requests
}

// A slot is one of the slots that Limits.Requests bounds. It is taken while the Authorizer runs and while a response is
// produced, but not while a body arrives or the client receives the response. A request in a reserve has its slot from
// the beginning to the end.
type slot struct {
	h        *Handler
	remote   string // the network address of the client
	reserved bool
	place    takenPlace
}

func (s *slot) take() *httpError {
	if s.reserved {
		return nil
	}
	if !s.h.slots.enter(&s.place, s.remote, false) {
		return unavailable(false, "Requests", "requests")
	}
	return nil
}

// leave frees the slot, if it is taken.
func (s *slot) leave() { s.h.slots.leave(&s.place, s.remote) }

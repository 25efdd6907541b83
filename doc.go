// Package chaingql serves a blockchain GraphQL API inside a host's own web
// application: give it a [Backend], get an [http.Handler].
//
//	h := chaingql.New(backend, nil)
//	mux.Handle("/{project}/graphql", h)
//	mux.Handle("/{project}/graphql/{$}", h) // so that neither form is redirected
//
// The API is that of the public services of Everscale- and TON-like networks,
// and works with the clients made for them: account balances, pages of blocks,
// and live blocks. Queries come by HTTP GET and POST or over a socket, live
// blocks over WebSocket or as an event stream.
//
// # The chain
//
// A [Backend] is three calls: a balance by address, a page of blocks, and the
// blocks as they come. Package memchain is one in memory; package backendtest
// has the rules of a Backend as tests for anybody's.
//
// # What is delivered
//
// A subscription gets each block that matches its filter, once and in cursor
// order, from the position it asks for: behind the cursor in its argument after
// (a block's chain_order), or from now on. An event stream's ids are cursors, so
// that a browser which lost its line goes on behind the last block it had, if it
// had one.
//
// One [Backend.Follow] feeds all subscriptions; where it fails it is started
// anew from its last cursor, and blocks that come again are dropped. A
// subscription is a position in the log of recent blocks, not a queue: one that
// reads slowly, or starts in the past, reads on from that log or, further back,
// page by page from [Backend.Blocks], and is live again when it has caught up.
// Where the blocks after its cursor are no longer kept it ends with
// CURSOR_TOO_OLD and the oldest cursor there is; nothing is skipped in silence.
// Not covered yet: holes that the source itself leaves.
//
// # Strangers
//
// Everything from a client is hostile until it has been checked. Documents are
// measured before any rule runs that could take more than linear time,
// validated, and compiled once; [Limits] lists the bounds and their defaults.
// graphql-go's parser, validator and executor never see a client's text: a
// document of 31 bytes would end the process.
//
// The text of a Backend's errors never reaches a client. It sees "Internal
// server error" and an id, under which the log has the rest. Panics of the
// Backend and the Authorizer are treated alike.
//
// Left to the host: TLS, http.Server's ReadHeaderTimeout, rate limits, and an
// [Authorizer], without which every project is open to everyone.
package chaingql

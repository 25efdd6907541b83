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
// Fields and types of the host's own, with graphql-go's resolvers, stand beside
// the chain's: [Options].QueryFields and SubscriptionFields.
//
// # What is delivered
//
// Every block that matches a subscription's filter, in cursor order, exactly
// once, from the position it asked for: behind the cursor in its argument after
// (a block's chain_order), or from now on. Or an error that says why not and, in
// extensions.cursor, from where to go on.
//
// One [Backend.Follow] feeds all subscriptions. A subscription is a position in
// the log of recent blocks, not a queue: one that reads slowly, or starts in the
// past, reads on from that log or, further back, page by page from
// [Backend.Blocks], and is live again when it has caught up. Where Follow fails
// it is started anew from its last cursor. What comes twice, or out of order, is
// dropped. The numbers of each shard's blocks, through splits and merges, tell
// what Follow left out: it is read from Blocks and given in its place, unnoticed
// by everybody who was sent nothing from behind it. What has ended with an error
// is told so:
//
//   - STREAM_GAP: a block is missing that this subscription was, or may be, owed.
//     extensions.cursor is the position before it, which may be before blocks
//     that were already sent, by this subscription or by the one it goes on
//     from: go on from there, forgetting those. From then on the cursors that the
//     Handler makes for this client, in extensions.cursor and as ids of events,
//     have a suffix, by which it is told of each gap once.
//   - CURSOR_TOO_OLD: the blocks after the cursor that was asked for, or reached,
//     are no longer kept. extensions.oldest is the oldest that is; after: ""
//     starts with it.
//   - SERVICE_UNAVAILABLE: the service goes away, the session has expired, or the
//     source broke off; extensions.cursor is the position reached. It is absent
//     if the subscription had no cursor and the newest block could not be read
//     within a second: subscribe again.
//
// A connection that takes nothing for ten seconds is cut, when nothing more can
// be told; [Hooks] and the log have the position. Its client goes on from the
// last cursor it had, as after any cut line. For that a client on a socket needs
// chain_order in its selection; on an event stream, ids are cursors, and a
// browser goes on by itself, if it had an event.
//
// Pages of Blocks are checked by the same numbers, and the first page of a
// catch-up by one small call of Blocks that reads the block at its cursor: if
// blocks were pruned while a page was read, the subscription ends with
// CURSOR_TOO_OLD or STREAM_GAP.
//
// What this does not cover: a client that subscribes again without a cursor, as
// the networks' own SDK does, starts at the newest block. A block that Blocks
// does not have either is a gap for everybody who reads that part of the chain,
// live or later. A client that resumes from extensions.cursor or from an event's
// id is told of it once by each Handler. A plain chain_order does not show
// whether its client was told, so that client may be sent back again, and one
// that always starts from the same chain_order before a gap that stays never
// passes it. A block that Follow has left out shows by its successor in the
// shard, not before: a client that had blocks from behind it, and goes on in
// another process before it shows, is not told. The positions are the clients': a
// Handler keeps none beyond its life. It remembers 64 regions with gaps; of more,
// neighbors are merged, and a client may be sent back once without need.
//
// A query is answered from the log of recent blocks too, while that is live:
// what a subscriber was sent, every later query sees. When Follow has failed, or
// given nothing for [Options.Silence], queries ask the Backend, and info.latency
// grows. If Blocks then has a newer block, Follow hangs, and is started again.
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
// Backend, the Authorizer and the [Hooks] are treated alike.
//
// Left to the host: TLS, http.Server's ReadHeaderTimeout, rate limits, and an
// [Authorizer], without which every project is open to everyone.
package chaingql

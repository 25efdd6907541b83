// Package chaingql serves a blockchain GraphQL API inside a web application: pass it a [Backend], and it returns an
// [http.Handler].
//
//	h := chaingql.New(backend, nil)
//	chaingql.Mount(mux, "/{project}/graphql", h) // with and without a slash at the end
//
// The API is that of the public services of Everscale- and TON-like networks, and works with their clients: account
// balances, pages of blocks, and live blocks. Queries arrive by HTTP GET and POST or over a WebSocket, live blocks
// leave over WebSocket or as an event stream.
//
// # The chain
//
// A [Backend] has three methods: a balance by address, a page of blocks, and the stream of new blocks. Package
// memchain is one in memory. Package backendtest checks any implementation against the contract.
//
// A host can add fields and types with graphql-go's resolvers: see [SchemaExtension].
//
// # Delivery
//
// A subscription receives every block that matches its filter exactly once, in cursor order, from its start: the
// cursor in its argument after (a block's chain_order), or the newest block. Otherwise it ends with an error, whose
// extensions.cursor is the position to resume from.
//
// One [Backend.Follow] serves all subscriptions. A subscription is a position in the log of recent blocks, not a
// queue. If it reads slowly or starts in the past, it reads that log, or older pages from [Backend.Blocks], until it
// has caught up and is live. If Follow fails, it is restarted from its last cursor. Repeated and unordered blocks are
// dropped. The sequence numbers of each shard, through splits and merges, show which blocks Follow skipped. The
// Handler reads them from Blocks and delivers them in their place; subscriptions that have received no later block
// notice nothing. The others end with an error:
//
//   - STREAM_GAP: a block is missing that this subscription should have received, or may have. extensions.cursor is the
//     position before it. It may be older than blocks that the client has received, in this subscription or in the one
//     that it resumed: discard those and resume from the cursor. From then on, the cursors that the Handler creates for
//     this client (extensions.cursor and the ids of events) have a suffix, so that each gap is reported to it once.
//   - CURSOR_TOO_OLD: the blocks after the requested or reached cursor are no longer stored. extensions.oldest is the
//     oldest stored block; after: "" starts with it.
//   - SERVICE_UNAVAILABLE: the service shuts down, the session has expired, or the source has failed.
//     extensions.cursor is the position reached. It is absent if the subscription had no cursor and the newest block
//     could not be read within a second: then subscribe again.
//
// A connection that receives nothing for ten seconds is cut without a message; [Hooks] and the log have its position.
// Its client resumes from its last cursor, as after any lost connection. On a socket, it needs chain_order in its
// selection. On an event stream, ids are cursors, and a browser resumes by itself if it has received an event.
//
// Pages of Blocks are checked with the same sequence numbers. The first page of a catch-up is checked by one small
// call of Blocks, for the block at its cursor. If blocks were pruned while a page was read, the subscription ends
// with CURSOR_TOO_OLD or STREAM_GAP.
//
// Not covered:
//
//   - A client that subscribes again without a cursor, like the networks' own SDK, starts at the newest block.
//   - If Blocks does not have a block either, every subscription that reads that part of the chain ends with
//     STREAM_GAP, live or later. A client that resumes from extensions.cursor or from the id of an event receives it
//     once from each Handler. A plain chain_order does not show whether its client knows of the gap, so that client
//     may be sent back again. If it always resumes from the same chain_order before a gap that stays, it never passes
//     the gap.
//   - A skipped block is noticed when the next block of its shard arrives. A client that received blocks after the gap,
//     and resumes in another process before that, is not informed.
//   - When two shards merge, the new shard continues the higher of their numbers. If the source never has the last
//     blocks of the other shard, no number shows it.
//   - A Handler stores no positions of clients. It remembers 64 regions with gaps; beyond that it merges neighbors,
//     and a client may be sent back once without need.
//
// Queries are answered from the log of recent blocks while it is live: a query sees every block that a subscriber has
// received before. If Follow has failed, or has yielded nothing for [Options].StallTimeout, queries read from the
// Backend, and info.latency grows. If Blocks then has a newer block, Follow hangs and is restarted.
//
// # Security
//
// Everything from a client is hostile until it has been checked. Documents are measured before any rule runs that takes
// more than linear time, then validated and compiled once. [Limits] lists the limits and their defaults. graphql-go's
// parser, validator and executor never see text of a client: a document of 31 bytes would end the process.
//
// The text of a Backend's error never reaches a client. The client receives "Internal server error" with an id, under
// which the log has the error. Panics of the Backend, the Authorizer and the [Hooks] are handled in the same way.
//
// The host provides TLS, the timeouts of http.Server, rate limits, and an [Authorizer]. Without one, every project is
// open to everyone.
package chaingql

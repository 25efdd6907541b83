// Package chaingql serves a blockchain GraphQL API inside a web application. Pass a [Backend] to [New], which returns
// an [http.Handler]:
//
//	h := chaingql.New(backend, nil)
//	chaingql.Mount(mux, "/{project}/graphql", h) // with and without a slash at the end
//
// The API is compatible with the public services of Everscale- and TON-like networks and with their clients. It serves
// account balances, pages of blocks, and live blocks. Clients send queries by HTTP GET or POST or over a WebSocket.
// They receive live blocks over a WebSocket or as an event stream (Server-Sent Events).
//
// In this documentation, the host is the application that creates the [Handler].
//
// # The chain
//
// A [Backend] provides one chain. Its method Balance returns the balance of an account, Blocks returns a page of stored
// blocks, and Follow yields new blocks. Package memchain implements a Backend in memory. Package backendtest checks any
// implementation against the contract.
//
// A host can add its own fields and types with graphql-go's resolvers: see [SchemaExtension].
//
// # Delivery
//
// A subscription starts after the cursor in its argument after, which is the chain_order of a block. Without that
// argument it starts after the newest block. From there it receives every block that matches its filter exactly once,
// in cursor order. If that is impossible, it ends with an error, and extensions.cursor of the error is the position to
// resume from.
//
// The Handler calls [Backend.Follow] once for all subscriptions. A subscription is a position in the log of recent
// blocks, not a queue. A subscription that reads slowly or starts in the past reads that log, or older pages from
// [Backend.Blocks], until it has caught up and is live. If Follow fails, the Handler calls it again with the last
// cursor. Repeated and unordered blocks are dropped.
//
// The Handler uses the sequence numbers of each shard, also across splits and merges, to detect blocks that Follow
// skipped. It reads the skipped blocks from Blocks and delivers them in their place. A subscription that has not yet
// received a later block continues as if nothing had been skipped. A subscription that has received a later block, but
// not a skipped one that matches its filter, ends with STREAM_GAP.
//
// A subscription can end with one of these errors:
//
//   - STREAM_GAP: the subscription has missed a block, or may have missed one. extensions.cursor is the position before
//     that block. It may be older than blocks that the client has already received, in this subscription or in the one
//     that it resumed. The client must discard those blocks and resume from the cursor. From then on, the cursors that
//     the Handler creates for this client (extensions.cursor and event ids) have a suffix, so that the Handler reports
//     each gap to the client only once.
//   - CURSOR_TOO_OLD: blocks after the requested cursor, or after the position reached, are no longer stored.
//     extensions.oldest is the cursor of the oldest stored block. A subscription with after: "" starts with that block.
//   - SERVICE_UNAVAILABLE: the service is shutting down, the session has expired, or the source has failed.
//     extensions.cursor is the position reached. It is absent if the subscription had no cursor and the newest block
//     could not be read within a second. In that case, the client should subscribe again without a cursor.
//
// If a client reads nothing for ten seconds, the Handler cuts the connection without a message. [Hooks] and the log
// report the position that the client had reached. As after any lost connection, the client resumes from its last
// cursor. On a WebSocket, it knows that cursor only if it selects chain_order. On an event stream, the event ids are
// cursors, and a browser that has received at least one event resumes by itself.
//
// The Handler checks pages from Blocks with the same sequence numbers. When a subscription starts in the past, one
// additional small call of Blocks reads the block at its cursor, so that the first page can be checked too. If blocks
// are pruned while a page is read, the subscription ends with CURSOR_TOO_OLD or STREAM_GAP.
//
// Delivery has these limits:
//
//   - A client that subscribes again without a cursor, as the networks' own SDK does, starts after the newest block and
//     misses the blocks before it.
//   - If Blocks does not have a skipped block either, every subscription that reads that part of the chain ends with
//     STREAM_GAP, even if it does so much later. A client that resumes from extensions.cursor or from an event id
//     receives this error only once from each Handler. A plain chain_order does not show whether the client knows of
//     the gap, so a client that resumes from one may receive the error again. If it always resumes from the same
//     chain_order before a permanent gap, it never gets past the gap.
//   - A skipped block is noticed only when the next block of its shard arrives. If a client has received blocks after
//     the gap, and resumes at another process of the service before that time, it receives no error.
//   - When two shards merge, the sequence numbers of the new shard continue the higher of the two. If the source lacks
//     the last blocks of the shard with the lower number, no sequence number shows that they are missing.
//   - A Handler stores no client positions. It remembers 64 gaps that were found late. If there are more, it merges
//     neighboring ones, so a client may receive one STREAM_GAP without need.
//
// While Follow works, queries for recent blocks are answered from the log of recent blocks, so a query sees every block
// that a subscriber has received before. If Follow has failed, or has yielded nothing for [Options].StallTimeout,
// queries read from the Backend instead, and info.latency grows. If Blocks then has a newer block, the Handler assumes
// that Follow hangs, and restarts it.
//
// # Security
//
// Client input counts as hostile until it has been checked. The structure of a document is checked against [Limits]
// before any rule that takes more than linear time runs. Then the document is validated and compiled once. graphql-go's
// parser, validator and executor never receive a client's text, because a document of 31 bytes can make them end the
// process.
//
// The text of a Backend's error never reaches a client. The client receives "Internal server error" with an id, and the
// log has the error under the same id. A panic in the Backend or the [Authorizer] is handled in the same way. A panic
// in one of the [Hooks] is only logged.
//
// The host must provide TLS, the timeouts of http.Server, rate limits, and an [Authorizer]. Without an Authorizer,
// every project is open to everyone.
package chaingql

// Package chaos contains only tests. They run a complete service under faults. Hundreds of subscribers
// connect over all transports. Connections are cut, delayed and throttled, sessions expire, and the
// service is replaced. The source of blocks fails, stalls, and repeats, reorders and omits blocks. Some
// omitted blocks appear later, and some never do.
//
// Each subscriber follows docs/protocol.md. At the end, it must have received each block that it
// subscribed to exactly once and in order. The only exception is a block that the source never had: for
// it, the subscriber must have received the error STREAM_GAP.
//
// One of the chains has an epoch. Another chain is replaced: its streams must end with EPOCH_CHANGED, and
// no stream may have blocks of both chains.
//
// The tests run in real time on real connections. A run logs its seed, so that rare failures can be
// repeated.
//
//	make chaos                                    # full size, at most four minutes
//	go test .                                     # a short run
//	go test -v . -args -chaos.seed 42             # repeats the faults of that seed, as far as timing allows
//	./mutate.sh                                   # checks that the tests detect the defects in mutations.txt
package chaos

// Package chaos contains only tests. They run the whole service under faults: hundreds of
// subscribers over all transports, connections that are cut, delayed and throttled, sessions that
// expire, a service that is replaced, and a source that fails, stalls, repeats, reorders and omits
// blocks, for a while or forever.
//
// Each subscriber follows docs/protocol.md. At the end it must have received each block that it
// subscribed to exactly once and in order. If the source lost a block forever, the subscriber must
// have received the block or STREAM_GAP.
//
// The tests run in real time on real connections. A run logs its seed, so that rare failures can be
// repeated.
//
//	make chaos                                    # full size, two minutes at most
//	go test .                                     # a short run
//	go test -v . -args -chaos.seed 42             # repeats the faults of that seed, as far as timing allows
//	./mutate.sh                                   # checks that the tests notice the faults of mutations.txt
package chaos

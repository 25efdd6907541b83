// Package chaos holds no code, only a test that puts the whole service through
// a bad day: hundreds of subscribers over all transports, on lines that are cut,
// delayed and throttled, with sessions that expire, over a source that fails,
// stalls, repeats, reorders and leaves blocks out, for a while or for good, while
// the service is replaced. Each subscriber does what docs/protocol.md demands, and
// must end up with each block that it asked for, once and in order; if the source
// lost a block for good, with the block or with STREAM_GAP.
// It runs in real time, on real connections; what is wrong only now and then
// has its seed printed.
//
//	make chaos                                    # full size, two minutes at most
//	go test .                                     # a short run
//	go test -v . -args -chaos.seed 42             # the mischief of that seed, as far as timing allows
//	./mutate.sh                                   # does it notice the faults of mutations.txt?
package chaos

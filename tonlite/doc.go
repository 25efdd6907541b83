// Package tonlite serves a TON network that lite servers serve: a
// [chaingql.Backend] that keeps nothing but what it has lately read.
//
//	config, err := tonlite.ReadConfig(ctx, "global.config.json") // or a URL
//	if err != nil {
//		log.Fatal(err)
//	}
//	backend, err := tonlite.Open(ctx, config, nil)
//	if err != nil {
//		log.Fatal(err) // no server that answers, a wrong key, another network, no proof
//	}
//	defer backend.Close()
//	mux.Handle("/{project}/graphql", chaingql.New(backend, nil))
//
// # What is believed
//
// One block: the configuration's init_block. From there every masterchain block
// that is used is proven, forward by the signatures of more than two thirds of the
// validators, and back by its place in a proven block's state. All else follows
// by hashes: a block's header and its predecessors, the shards that a
// masterchain block commits to, an account's balance in a shard's state, and
// that an account is not there. A server that answers otherwise is left alone
// for a while, its answer is an error, and another server is asked.
//
// A network whose configuration has no init_block past its zero state cannot be
// proven in that way. [Options].Unproven opens it all the same: masterchain
// blocks are then taken at the servers' word, and must lead back to the ones known
// before; everything else is still checked against them.
package tonlite

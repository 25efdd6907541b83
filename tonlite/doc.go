// Package tonlite provides a [chaingql.Backend] for a TON network. It reads blocks and
// balances from lite servers and stores nothing, except a cache of recent reads.
//
//	config, err := tonlite.ReadConfig(ctx, "global.config.json") // or a URL
//	if err != nil {
//		log.Fatal(err)
//	}
//	backend, err := tonlite.Open(ctx, config, nil)
//	if err != nil {
//		log.Fatal(err) // no server responds, a wrong key, another network, no proof
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// # Trust
//
// Only the configuration's init_block is trusted. From there every masterchain block is
// proven: forward by the signatures of more than two thirds of the validators, and
// backward by its entry in the state of a proven block. Everything else follows from
// hashes: a block's header and predecessors, the shards that a masterchain block commits
// to, an account's balance in the state of a shard, and the absence of an account. If a
// response fails a check, it is an error, the server is not used for a while, and another
// server is queried.
//
// A network whose configuration has no init_block after its zero state cannot be proven.
// [Options].Unproven opens it anyway: masterchain blocks are then accepted without
// signatures but must lead back to the blocks known before. Everything else is still
// verified against them.
package tonlite

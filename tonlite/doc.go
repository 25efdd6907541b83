// Package tonlite provides a [chaingql.Backend] for a TON network. It reads blocks and
// balances from the network's lite servers. It stores nothing, but caches recent reads in
// memory.
//
//	config, err := tonlite.ReadConfig(ctx, "global.config.json") // or a URL
//	if err != nil {
//		log.Fatal(err)
//	}
//	backend, err := tonlite.Open(ctx, config, nil)
//	if err != nil {
//		log.Fatal(err) // for example, if no server responds
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// # Trust
//
// A Backend trusts only one block: the init_block of the configuration. It requires a proof
// for every other masterchain block. A later block is proven by the signatures of validators
// with more than two thirds of the total weight. An earlier block is proven by its entry in
// the state after a proven block.
//
// All other data is verified with hashes, starting from a proven masterchain block: the
// header and the predecessors of a block, the newest block of each shard, and the balance or
// the absence of an account. If a response fails a check, the Backend rejects it, stops using
// that server for a while, and queries another server.
//
// If the configuration has no init_block, or its init_block is the zero state, blocks cannot
// be proven, and [Open] returns an error. [Options].Unproven opens such a network anyway:
// masterchain blocks are then accepted without signatures, but must lead back to the newest
// known block. All other data is still verified from the masterchain blocks.
package tonlite

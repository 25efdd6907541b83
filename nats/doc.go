// Package natschain stores a chain in NATS JetStream. It contains a
// [chaingql.Backend] that serves the chain, and a [Writer] with which an indexer
// appends to it.
//
//	backend, err := natschain.Open(ctx, os.Getenv("NATS_URL"), nil)
//	if err != nil {
//		log.Fatal(err) // for example: no server, wrong credentials, a missing stream or permission
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// Blocks are messages in a stream, in cursor order. Balances are values in a
// key-value bucket. The names of the stream and of the bucket begin with
// [Options].Chain. Any number of hosts can serve one chain, each with one connection
// and one consumer. A subscriber can resume from its cursor at any host. The package
// is called natschain so that a host can also import nats.go as nats.
package natschain

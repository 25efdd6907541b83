// Package natschain keeps a chain in NATS JetStream: a [chaingql.Backend] that
// serves it, and a [Writer] for the indexer that fills it.
//
//	backend, err := natschain.Open(ctx, os.Getenv("NATS_URL"), nil)
//	if err != nil {
//		log.Fatal(err) // no server, wrong credentials, no JetStream, no stream, no permission, too old a server
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// Blocks are messages of a stream, in cursor order. Balances are values of a
// key-value bucket. [Options].Chain names both. Any number of hosts can serve one
// chain, each with one connection and one consumer. A subscriber can continue from
// its cursor at any of them. The package is called natschain so that a host can
// also import nats.go as nats.
package natschain

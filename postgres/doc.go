// Package postgres keeps a chain in PostgreSQL: a [chaingql.Backend] that
// serves it, and a [Writer] for the indexer that fills it.
//
//	backend, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), nil)
//	if err != nil {
//		log.Fatal(err) // no such database, no permission, too old a server, tables missing
//	}
//	defer backend.Close()
//	mux.Handle("/{project}/graphql", chaingql.New(backend, nil))
//
// The tables live in a schema of their own ([Options].Schema) and are made by
// Open. New blocks are told of by NOTIFY, which is a bare wake-up: what a Follow
// yields it reads from the table, from its own cursor on, so a notification that
// is lost costs time and no block.
package postgres

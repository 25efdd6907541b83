// Package postgres stores a chain in PostgreSQL. It contains a [chaingql.Backend] that
// serves the chain and a [Writer] for the indexer that fills it.
//
//	backend, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), nil)
//	if err != nil {
//		log.Fatal(err) // no such database, no permission, too old a server, tables missing
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// Open creates the tables in a schema of their own ([Options].Schema). NOTIFY only wakes
// a Follow, which then reads the table from its own cursor on. If a notification is
// lost, blocks arrive late, but none is lost.
package postgres

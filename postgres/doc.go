// Package postgres stores a chain in PostgreSQL. It contains a [chaingql.Backend] that
// serves the chain and a [Writer] for the indexer that fills it.
//
//	backend, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), nil)
//	if err != nil {
//		log.Fatal(err) // for example: the database does not exist, or the server is too old
//	}
//	defer backend.Close()
//	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))
//
// Open creates the tables in a separate schema ([Options].Schema). A notification only
// wakes the Follow calls. Each call then reads the blocks after its own cursor from the
// table. A lost notification therefore delays blocks, but does not lose any.
package postgres

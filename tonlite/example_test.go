package tonlite_test

import (
	"context"
	"log"
	"net/http"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
)

func Example() {
	ctx, mux := context.Background(), http.NewServeMux()

	config, err := tonlite.ReadConfig(ctx, "global.config.json") // or a URL
	if err != nil {
		log.Fatal(err)
	}
	backend, err := tonlite.Open(ctx, config, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // after the Handler's Shutdown
	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))

	log.Print(http.ListenAndServe("127.0.0.1:8080", mux))
}

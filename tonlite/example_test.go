package tonlite_test

import (
	"context"
	"log"
	"net/http"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
)

func Example() {
	ctx := context.Background()
	config, err := tonlite.ReadConfig(ctx, "https://ton.org/global.config.json")
	if err != nil {
		log.Fatal(err)
	}
	backend, err := tonlite.Open(ctx, config, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	http.Handle("/{project}/graphql", chaingql.New(backend, nil))
	log.Print(http.ListenAndServe("127.0.0.1:8080", nil))
}

package postgres_test

import (
	"context"
	"log"
	"math/big"
	"net/http"
	"os"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
)

func Example() {
	ctx, mux := context.Background(), http.NewServeMux()

	backend, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // after the Handler's Shutdown
	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))

	log.Print(http.ListenAndServe("127.0.0.1:8080", mux))
}

func ExampleWriter() {
	ctx := context.Background()
	backend, err := postgres.Open(ctx, os.Getenv("DATABASE_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	w, err := backend.Writer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	block := chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: 7, Cursor: chaingql.ChainOrder(-1, 1<<63, 7, 7)}
	changed := map[chaingql.Address]*big.Int{{ID: [32]byte{1}}: big.NewInt(1_000_000_000)}
	if err := w.Commit(ctx, []chaingql.Block{block}, changed); err != nil {
		log.Fatal(err)
	}
}

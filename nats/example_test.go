package natschain_test

import (
	"context"
	"fmt"
	"log"
	"math/big"
	"net/http"
	"os"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

func Example() {
	ctx, mux := context.Background(), http.NewServeMux()

	backend, err := natschain.Open(ctx, os.Getenv("NATS_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close() // call it after the Handler's Shutdown
	chaingql.Mount(mux, "/{project}/graphql", chaingql.New(backend, nil))

	log.Print(http.ListenAndServe("127.0.0.1:8080", mux))
}

// Credentials and TLS are options of nats.go.
func ExampleOptions_credentials() {
	backend, err := natschain.Open(context.Background(), os.Getenv("NATS_URL"), &natschain.Options{
		Connect: []nats.Option{nats.UserCredentials("host.creds"), nats.RootCAs("ca.pem")},
	})
	if err != nil {
		log.Fatal(err)
	}
	backend.Close()
}

func ExampleWriter() {
	ctx := context.Background()
	block := chaingql.Block{Workchain: -1, Shard: 1 << 63, SeqNo: 7, Cursor: chaingql.ChainOrder(-1, 1<<63, 7, 7)}
	changed := map[chaingql.Address]*big.Int{{ID: [32]byte{1}}: big.NewInt(1_000_000_000)}

	opts := &natschain.Options{Create: &natschain.Storage{Replicas: 3}}
	backend, err := natschain.Open(ctx, os.Getenv("NATS_URL"), opts)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	w, err := backend.Writer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := w.SetBalances(ctx, changed); err != nil { // first, so that readers of the block see them
		log.Fatal(err)
	}
	if err := w.Append(ctx, block); err != nil {
		log.Fatal(err)
	}
}

func ExampleBackend_StrayMessages() {
	ctx := context.Background()
	backend, err := natschain.Open(ctx, os.Getenv("NATS_URL"), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()
	for m, err := range backend.StrayMessages(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Seq, m.Reason)
		if err := backend.RemoveStray(ctx, m.Seq); err != nil {
			log.Println(err)
		}
	}
}

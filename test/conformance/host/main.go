// Command host serves a chain that does not grow, so that repeated queries have equal responses.
//
//	go run . [blocks.json [accounts.json]]
//
// Without files the chain is simulated. The command prints its URL and exits when its standard
// input is closed.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("host: ")
	chain := memchain.New()
	for _, path := range os.Args[1:] {
		if err := add(chain, path); err != nil {
			log.Fatalf("%s: %v", path, err)
		}
	}
	if len(os.Args) == 1 {
		if err := simulate(chain); err != nil {
			log.Fatal(err)
		}
	}
	// The conformance tools send all their messages over one socket.
	handler := chaingql.New(chain, &chaingql.Options{Limits: chaingql.Limits{MessageRate: -1}})
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", handler)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/demo/graphql\n", listener.Addr())
	go func() { log.Fatal(http.Serve(listener, mux)) }()
	_, _ = io.Copy(io.Discard, os.Stdin) // until standard input is closed
}

// add adds a recording to a chain.
func add(chain *memchain.Chain, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	rec, err := memchain.Load(f)
	if err != nil {
		return err
	}
	return chain.Add(rec)
}

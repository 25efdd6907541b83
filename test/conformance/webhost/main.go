// Command webhost serves a simulated chain, a block every 200 ms, to web pages:
// to the explorer, or to those of a folder.
//
//	go run ./webhost [-origin scheme://host:port]... [-secret secret] [-pages folder]
//
// It prints its URL, then a line for each answer as its header goes out, and
// ends when its standard input does.
package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/explorer"
	"github.com/chaingql/chaingql/memchain"
)

func main() {
	log.SetFlags(0)
	opts := &chaingql.Options{}
	flag.Func("origin", "whose pages may call; repeatable", func(s string) error {
		opts.AllowedOrigins = append(opts.AllowedOrigins, s)
		return nil
	})
	secret := flag.String("secret", "", "that the project demo needs")
	pages := flag.String("pages", "", "`folder` to serve in the explorer's place")
	flag.Parse()
	if *secret != "" {
		opts.Authorizer = chaingql.StaticProjects{"demo": {Secret: *secret, RequireSecret: true}}
	}
	chain := memchain.New()
	mux := http.NewServeMux()
	mux.Handle("/demo/graphql", told(chaingql.New(chain, opts)))
	if *pages == "" {
		mux.Handle("/", explorer.New(nil))
		mux.Handle("/tools/explorer/", http.StripPrefix("/tools/explorer", explorer.New(nil)))
	} else {
		mux.Handle("/", http.FileServer(http.Dir(*pages)))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatalf("webhost: %v", err)
	}
	fmt.Printf("http://%s/demo/graphql\n", listener.Addr())
	go grow(chain)
	go func() { log.Fatal(http.Serve(listener, mux)) }()
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever started it is gone
}

func grow(chain *memchain.Chain) {
	const masterchain, whole = -1, 1 << 63
	for n := uint32(1); ; n++ {
		err := chain.Append(chaingql.Block{
			Workchain: masterchain, Shard: whole, SeqNo: n, Time: time.Now(),
			Hash: sha256.Sum256(fmt.Append(nil, n)), Cursor: chaingql.ChainOrder(masterchain, whole, n, n),
		})
		if err != nil {
			log.Fatalf("webhost: %v", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

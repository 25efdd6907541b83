// Command webhost serves a simulated chain with one block every 200 ms, and either the explorer or
// a folder of web pages.
//
//	go run ./webhost [-origin scheme://host:port]... [-secret secret] [-pages folder]
//
// It prints its URL, and then one line for each response: method, origin, status, and whether the
// origin may read the response. It exits when its standard input is closed.
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
	flag.Func("origin", "origin whose pages may use the API; repeatable", func(s string) error {
		opts.AllowedOrigins = append(opts.AllowedOrigins, s)
		return nil
	})
	secret := flag.String("secret", "", "secret of the project demo")
	pages := flag.String("pages", "", "`folder` to serve instead of the explorer")
	flag.Parse()
	if *secret != "" {
		opts.Authorizer = chaingql.StaticProjects{"demo": {Secret: *secret, RequireSecret: true}}
	}
	chain := memchain.New()
	mux := http.NewServeMux()
	mux.Handle("/demo/graphql", logged(chaingql.New(chain, opts)))
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
	_, _ = io.Copy(io.Discard, os.Stdin) // until standard input is closed
}

// grow appends a block every 200 ms.
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

// Command follow prints the balance of an account and then each new masterchain block.
//
//	go run ./follow -service http://127.0.0.1:8080 -project demo
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	chain "github.com/chaingql/chaingql/examples/clients/go"
)

func main() {
	service := flag.String("service", "http://127.0.0.1:8080", "URL of the service")
	project := flag.String("project", "demo", "project id")
	secret := flag.String("secret", os.Getenv("CHAIN_SECRET"), "secret of the project, if the project has one")
	address := flag.String("address", "", "address of the account whose balance is printed first")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c := chain.New(*service, *project, *secret)
	if err := follow(ctx, c, *address); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func follow(ctx context.Context, c *chain.Client, address string) error {
	if address != "" {
		nano, err := c.Balance(ctx, address)
		if err != nil {
			return err
		}
		fmt.Println(nano, "nano")
	}
	after, err := c.Newest(ctx) // or the stored Cursor of the last processed block
	if err != nil {
		return err
	}
	masterchain := -1
	for block, err := range c.Blocks(ctx, after, &chain.BlockFilter{WorkchainId: &chain.IntFilter{Eq: &masterchain}}) {
		if err != nil {
			return err
		}
		fmt.Println(block.SeqNo, block.Id)
	}
	return nil
}

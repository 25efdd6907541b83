package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// nodeReady returns an error if Node.js or the packages of its peers are not installed.
func nodeReady() error {
	if _, err := exec.LookPath("node"); err != nil {
		return err
	}
	if _, err := os.Stat("node/node_modules/mercurius"); err != nil {
		return fmt.Errorf("packages are missing; run npm ci in the directory node: %w", err)
	}
	return nil
}

// startNode starts a Node.js peer with a copy of the chain.
func startNode(ctx context.Context, peer string, s *source.Source) (*process, error) {
	f, err := os.CreateTemp("", "chain-*.json")
	if err != nil {
		return nil, err
	}
	name := f.Name()
	err = json.NewEncoder(f).Encode(chainData(s))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(name)
		return nil, err
	}
	return start(ctx, "node", "node/server.js", peer, "schema.graphql", name) // the server removes the file
}

// chainData returns the blocks and balances of the chain as data that can be encoded as JSON.
func chainData(s *source.Source) any {
	type block struct {
		Hash       string `json:"hash"`
		SeqNo      uint32 `json:"seq_no"`
		Workchain  int32  `json:"workchain_id"`
		Shard      string `json:"shard"`
		Utime      int64  `json:"gen_utime"`
		ChainOrder string `json:"chain_order"`
	}
	var all struct {
		Blocks   []block           `json:"blocks"`
		Balances map[string]string `json:"balances"`
	}
	ctx, after := context.Background(), chaingql.Cursor("")
	for {
		page, err := s.Blocks(ctx, chaingql.BlocksQuery{After: after, First: chaingql.MaxPage})
		if err != nil {
			panic(err) // a chain in memory returns no errors
		}
		if len(page) == 0 {
			break
		}
		for i := range page {
			b := &page[i]
			all.Blocks = append(all.Blocks, block{b.Hash.String(), b.SeqNo, b.Workchain, source.Shard(b), b.Time.Unix(),
				string(b.Cursor)})
			after = b.Cursor
		}
	}
	all.Balances = map[string]string{}
	for i := range source.Accounts {
		addr := source.Address(i)
		text, err := s.Text(ctx, addr, true)
		if err != nil {
			panic(err)
		}
		all.Balances[addr.String()] = text
	}
	return all
}

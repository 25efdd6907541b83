package liteservertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/chaingql/chaingql/tonlite/liteservertest"
	"github.com/xssnick/tonutils-go/address"
	"github.com/xssnick/tonutils-go/liteclient"
	"github.com/xssnick/tonutils-go/ton"
)

// TestServerWorksWithIndependentClient reads a chain with the client of tonutils-go. That client
// shares no code with this module: it has its own handshake, messages and checks.
func TestServerWorksWithIndependentClient(t *testing.T) {
	if raceEnabled {
		t.Log("package tl of tonutils-go fails the pointer checks of -race; use -gcflags=all=-d=checkptr=0")
		return
	}
	chain := liteservertest.Generate(30)
	s, err := liteservertest.Start(chain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	var config liteclient.GlobalConfig
	if err := json.Unmarshal(s.Config(), &config); err != nil {
		t.Fatal(err)
	}
	pool := liteclient.NewConnectionPool()
	pool.SetOnDisconnect(nil)
	t.Cleanup(pool.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := pool.AddConnectionsFromConfig(ctx, &config); err != nil {
		t.Fatal(err)
	}
	api := ton.NewAPIClient(pool, ton.ProofCheckPolicySecure)
	api.SetTrustedBlockFromConfig(&config)
	head, err := api.GetMasterchainInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if head.SeqNo != chain.Last() {
		t.Errorf("got newest block %d, want %d", head.SeqNo, chain.Last())
	}
	early, err := api.LookupBlock(ctx, head.Workchain, head.Shard, 12)
	if err != nil {
		t.Fatal(err)
	}
	if err := api.VerifyProofChain(ctx, head, early); err != nil {
		t.Errorf("proof from the newest block back to block 12: got error %v", err)
	}
	for addr, want := range chain.Balances(chain.Last()) {
		account, err := api.GetAccount(ctx, head, address.NewAddress(0, byte(addr.Workchain), addr.ID[:]))
		if err != nil {
			t.Fatalf("account %v: got error %v", addr, err)
		}
		if got := account.State.Balance.Nano(); got.Cmp(want) != 0 {
			t.Errorf("balance of %v: got %v, want %v", addr, got, want)
		}
	}
	shards, err := api.GetBlockShardsInfo(ctx, head)
	if err != nil {
		t.Fatal(err)
	}
	if len(shards) == 0 {
		t.Error("got no shards")
	}
	for _, id := range shards {
		block, err := api.GetBlockData(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		parents, err := block.BlockInfo.GetParentBlocks()
		if err != nil || len(parents) == 0 || bytes.Equal(parents[0].RootHash, id.RootHash) {
			t.Errorf("predecessors of %v: got %v and error %v", id, parents, err)
		}
	}
	waited := make(chan error, 1)
	s.Advance(20)
	go func() {
		_, err := api.WaitForBlock(25).LookupBlock(ctx, head.Workchain, head.Shard, 25)
		waited <- err
	}()
	time.Sleep(20 * time.Millisecond) // by then, the query probably waits; it must get a response in any case
	s.Advance(25)
	if err := <-waited; err != nil {
		t.Errorf("query that waits for block 25: got error %v", err)
	}
}

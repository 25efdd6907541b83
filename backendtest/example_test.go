package backendtest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// Run calls the function once for each rule. The function creates a new source and returns
// a Harness with the operations that the source supports.
func ExampleRun() {
	TestBackend := func(t *testing.T) {
		backendtest.Run(t, func(t *testing.T) backendtest.Harness {
			chain := memchain.New() // for example, a new database that t.Cleanup drops
			return backendtest.Harness{
				Backend:    chain,
				Append:     func(blocks []chaingql.Block) error { return chain.Append(blocks...) },
				SetBalance: func(a chaingql.Address, nano *big.Int) error { chain.SetBalance(a, nano); return nil },
				Prune:      func(before chaingql.Cursor) error { chain.Prune(before); return nil },
				Interrupt:  func() { chain.Interrupt(nil) },
			}
		})
	}
	fmt.Println("passed:", passes(TestBackend))
	// Output: passed: true
}

// passes runs a test and reports whether it passes. It hides the output of the test.
func passes(test func(*testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	before := verbose.String()
	_ = verbose.Set("false")
	defer func() { _ = verbose.Set(before) }()
	everything := func(_, _ string) (bool, error) { return true, nil }
	return testing.RunTests(everything, []testing.InternalTest{{Name: "TestBackend", F: test}})
}

// Chain returns the same blocks for the same seed, with splits and merges.
func ExampleChain() {
	for _, b := range backendtest.Chain(5, 1) {
		fmt.Printf("workchain %d, shard %016x, seq_no %d, cursor %s\n", b.Workchain, b.Shard, b.SeqNo, b.Cursor)
	}
	// Output:
	// workchain 0, shard 8000000000000000, seq_no 1, cursor 01000101
	// workchain 0, shard 8000000000000000, seq_no 2, cursor 01000201
	// workchain 0, shard 8000000000000000, seq_no 3, cursor 01000301
	// workchain -1, shard 8000000000000000, seq_no 1, cursor 01m
	// workchain 0, shard 8000000000000000, seq_no 4, cursor 02000401
}

// A ChaosBackend that omits blocks and fails shows which errors your subscribers receive.
func ExampleChaos() {
	chain := memchain.New()
	if err := chain.Append(backendtest.Chain(20, 1)...); err != nil {
		fmt.Println(err)
	}
	broken := backendtest.Chaos(chain, backendtest.ChaosOptions{Seed: 2, Hole: 0.2, Fail: 0.1})
	for block, err := range broken.Follow(context.Background(), "") {
		if err != nil {
			fmt.Println("failed:", errors.Is(err, backendtest.ErrChaos))
			break
		}
		fmt.Println("cursor", block.Cursor)
	}
	fmt.Println("omitted blocks:", broken.Counts().Holes)
	// Output:
	// cursor 01000201
	// cursor 01m
	// cursor 02000401
	// cursor 02000501
	// cursor 02m
	// failed: true
	// omitted blocks: 2
}

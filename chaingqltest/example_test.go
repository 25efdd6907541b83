package chaingqltest_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/chaingqltest"
)

// The function is a complete test of a subscription.
func ExampleSubscribe() {
	TestNewBlocks := func(t *testing.T) {
		chain := chaingqltest.NewChain(t)
		h := chaingqltest.NewHandler(t, chain, nil)
		blocks := chaingqltest.Subscribe(t, h, `subscription { blocks { seq_no } }`, nil)
		chain.Advance(2)
		got := chaingqltest.Take(t, blocks, 2)
		if got[0] != `{"blocks":{"seq_no":1}}` || got[1] != `{"blocks":{"seq_no":2}}` {
			t.Errorf("got %s", got)
		}
	}
	fmt.Println("passed:", passes(TestNewBlocks))
	// Output: passed: true
}

// The Authorizer receives the project and the secret that As chooses.
func ExampleAs() {
	TestSecret := func(t *testing.T) {
		projects := chaingql.StaticProjects{"shop": {Secret: "s3cret", RequireSecret: true}}
		h := chaingqltest.NewHandler(t, chaingqltest.NewChain(t), &chaingql.Options{Authorizer: projects})
		chaingqltest.Query(t, chaingqltest.As(h, "shop", "s3cret"), `{ info { version } }`, nil)
		_, err := chaingqltest.Do(t, chaingqltest.As(h, "shop", "guess"), `{ info { version } }`, nil)
		if chaingqltest.Code(err) != "UNAUTHENTICATED" {
			t.Errorf("with a wrong secret, Do returned %v", err)
		}
	}
	fmt.Println("passed:", passes(TestSecret))
	// Output: passed: true
}

// passes runs a test like go test, without its output.
func passes(test func(*testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	before := verbose.String()
	_ = verbose.Set("false")
	defer func() { _ = verbose.Set(before) }()
	everything := func(_, _ string) (bool, error) { return true, nil }
	return testing.RunTests(everything, []testing.InternalTest{{Name: "Test", F: test}})
}

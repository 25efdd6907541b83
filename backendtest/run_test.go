package backendtest_test

import (
	"context"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// A deafChain is a Backend. Its Follow ignores its context.
type deafChain struct{ *memchain.Chain }

func (c deafChain) Follow(_ context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return c.Chain.Follow(context.Background(), after)
}

// TestBrokenBackendFailsItsHostsTest does nothing unless TestRulesThatWouldFailForTheSameReasonAreSkipped runs it in
// another process. There it must fail, like the test of a host with a broken Backend.
func TestBrokenBackendFailsItsHostsTest(t *testing.T) {
	if os.Getenv("BACKENDTEST_HOST") == "" {
		return
	}
	backendtest.Run(t, func(*testing.T) backendtest.Harness {
		c := deafChain{memchain.New()}
		return backendtest.Harness{
			Backend: c, Append: func(blocks []chaingql.Block) error { return c.Append(blocks...) },
		}
	})
}

func TestRulesThatWouldFailForTheSameReasonAreSkipped(t *testing.T) {
	host := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBrokenBackendFailsItsHostsTest$")
	host.Env = append(os.Environ(), "BACKENDTEST_HOST=1")
	start := time.Now()
	output, err := host.CombinedOutput()
	if err == nil {
		t.Error("Run passed a Backend whose Follow ignores its context")
	}
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("Run took %v, want a few seconds", took)
	}
	text := string(output)
	// "--- FAIL" of TestBrokenBackendFailsItsHostsTest and of the only rule that failed.
	if failed := strings.Count(text, "--- FAIL: "); failed != 2 {
		t.Errorf("%d tests failed, want TestBrokenBackendFailsItsHostsTest and one rule", failed)
	}
	for _, want := range []string{
		"TestBrokenBackendFailsItsHostsTest/Follow_ends_when_its_context_is_done",
		"rules that depend on a failed rule: ",
		`"Follow yields the stored blocks and then waits"`,
		"(Harness.SetBalance is not set)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if !regexp.MustCompile(`\brun_test\.go:\d+: Follow\(after `).MatchString(text) {
		t.Error("the failure does not point at the call of Run")
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

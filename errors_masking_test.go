package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A failing Backend returns err from Balance and Follow.
type failing struct {
	*memchain.Chain
	err    error
	blocks bool // Blocks fails too
}

func (f failing) Balance(context.Context, chaingql.Address) (*big.Int, error) { return nil, f.err }

func (f failing) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if f.blocks {
		return nil, f.err
	}
	return f.Chain.Blocks(ctx, q)
}

func (f failing) Follow(context.Context, chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) { yield(chaingql.Block{}, f.err) }
}

type failingBatch struct{ failing }

func (f failingBatch) Balances(context.Context, []chaingql.Address) ([]*big.Int, error) {
	return nil, f.err
}

// secretErrors returns errors with extensions, wrapped in every way that Go has.
func secretErrors() map[string]error {
	secret := failure{"s3cret", map[string]any{"code": "S3CRET", "dsn": "s3cret"}}
	return map[string]error{
		"plain":         secret,
		"wrapped":       fmt.Errorf("query: %w", secret),
		"wrapped twice": fmt.Errorf("page: %w", fmt.Errorf("query: %w", secret)),
		"joined":        errors.Join(errors.New("first"), secret),
		"wrapped pair":  fmt.Errorf("%w: %w", errors.New("first"), secret),
	}
}

func TestExtensionsOfBackendErrorsNeverReachClients(t *testing.T) {
	const account = `account(address:"0:abababababababababababababababababababababababababababababababab` +
		`"){info{balance}}`
	documents := []string{`{blockchain{` + account + `}}`, `{blockchain{` + account + ` b:` + account + `}}`,
		`{blockchain{blocks(last:1){edges{cursor}}}}`, `{info{lastBlockTime}}`}
	for form, err := range secretErrors() {
		backend := failing{memchain.New(), err, true}
		for kind, b := range map[string]chaingql.Backend{"Backend": backend, "BalanceBatcher": failingBatch{backend}} {
			for transport, ask := range allTransports {
				t.Run(form+"/"+kind+"/"+transport, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h, log := newHandler(t, b, chaingql.Options{})
						n := serve(t, mounted(h))
						for _, document := range documents {
							got := ask(t, n, document, nil)
							code := parse(t, got).code()
							if strings.Contains(strings.ToLower(got), "s3cret") || code != "INTERNAL_SERVER_ERROR" {
								t.Errorf("%s: the error is not masked: %s", document, got)
							}
							time.Sleep(time.Second) // otherwise equal errors are logged in one line
						}
						if lines := strings.Count(log.String(), "chaingql: internal error;"); lines < len(documents) {
							t.Errorf("the log has %d internal errors, want at least %d: %s", lines, len(documents), log)
						}
					})
				})
			}
		}
	}
}

func TestExtensionsOfFollowErrorsNeverReachClients(t *testing.T) {
	for form, err := range secretErrors() {
		for _, blocks := range []bool{false, true} {
			t.Run(fmt.Sprint(form, " Blocks fails ", blocks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h, _ := newHandler(t, failing{memchain.New(), err, blocks}, chaingql.Options{})
					n := serve(t, mounted(h))
					s := n.socket(t)
					s.send(start("1", allBlocks))
					synctest.Wait()
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = h.Shutdown(ctx)
					streamed := n.ask(t, "POST", allBlocks, nil, "text/event-stream")
					for _, got := range []string{strings.Join(s.receive(), " "), streamed} {
						if strings.Contains(strings.ToLower(got), "s3cret") {
							t.Errorf("the client received the internal error: %s", got)
						}
					}
				})
			})
		}
	}
}

func TestExtensionsOfAuthorizerErrorsNeverReachClients(t *testing.T) {
	for form, err := range secretErrors() {
		h, log := newHandler(t, memchain.New(), chaingql.Options{Authorizer: authorizer(
			func(context.Context, chaingql.Credentials) (context.Context, error) { return nil, err })})
		got := query(h, `{__typename}`, nil)
		if strings.Contains(strings.ToLower(got), "s3cret") || parse(t, got).code() != "INTERNAL_SERVER_ERROR" {
			t.Errorf("%s: the error is not masked: %s", form, got)
		}
		if !strings.Contains(log.String(), "s3cret") {
			t.Errorf("%s: the log lacks the error: %s", form, log)
		}
	}
}

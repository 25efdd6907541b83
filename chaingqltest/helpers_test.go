package chaingqltest_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// A recorder is a testing.TB that stores the message of Fatalf instead of failing the test.
type recorder struct {
	testing.TB
	message string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.message = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure runs test on a goroutine, and returns the message with which it failed.
func failure(t *testing.T, test func(t testing.TB)) string {
	r := &recorder{TB: t}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		test(r)
	}()
	<-ended
	return r.message
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// hostFields returns a query field that fails for negative arguments, and a subscription field that counts to its
// argument at the given pace. ended receives a value when a subscription ends.
func hostFields(ended chan<- error, pace time.Duration) chaingql.SchemaExtension {
	args := graphql.FieldConfigArgument{"n": {Type: graphql.NewNonNull(graphql.Int)}}
	return chaingql.SchemaExtension{
		Queries: graphql.Fields{"double": {Type: graphql.Int, Args: args, Resolve: double}},
		Subscriptions: map[string]chaingql.SubscriptionField{"count": {
			Field: &graphql.Field{Type: graphql.Int, Args: args},
			Subscribe: func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error] {
				return func(yield func(any, error) bool) {
					to, _ := p.Args["n"].(int)
					for n := range to {
						select {
						case <-time.After(pace):
						case <-ctx.Done():
						}
						if ctx.Err() != nil || !yield(n+1, nil) {
							<-ctx.Done() // a failed write may be noticed just before the context is canceled
							break
						}
					}
					ended <- ctx.Err()
				}
			},
		}},
	}
}

func double(p graphql.ResolveParams) (any, error) {
	n, _ := p.Args["n"].(int)
	if n < 0 {
		return nil, negativeError{}
	}
	return 2 * n, nil
}

type negativeError struct{}

func (negativeError) Error() string              { return "n is negative" }
func (negativeError) Extensions() map[string]any { return map[string]any{"code": "NEGATIVE"} }

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
)

// A database that refuses connections and one that does not answer are the same outage.
func TestOutageIsErrUnavailable(t *testing.T) {
	s := sharedServer(t)
	for name, begin := range map[string]func(*testkit.Proxy){
		"refused": func(p *testkit.Proxy) { p.Refuse() },
		"frozen":  func(p *testkit.Proxy) { t.Cleanup(p.Stall()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
			b := open(t, s.tcp(p.Port(), "postgres", "postgres"),
				&postgres.Options{Schema: newSchema(), Timeout: 500 * time.Millisecond})
			begin(p)
			for range 2 {
				_, balance := b.Balance(t.Context(), chaingql.Address{})
				_, blocks := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
				for call, err := range map[string]error{"Balance": balance, "Blocks": blocks} {
					if !errors.Is(err, chaingql.ErrUnavailable) {
						t.Errorf("%s returned %v, want ErrUnavailable", call, err)
					}
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1}); errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("with a canceled context, Blocks returned %v, want no ErrUnavailable", err)
			}
		})
	}
}

package natschain_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// A server that refuses connections and one that does not answer are the same outage.
func TestOutageIsErrUnavailable(t *testing.T) {
	s := newBroker(t)
	for name, begin := range map[string]func(*testkit.Proxy){
		"refused": func(p *testkit.Proxy) { p.Refuse() },
		"frozen":  func(p *testkit.Proxy) { t.Cleanup(p.Stall()) },
	} {
		t.Run(name, func(t *testing.T) {
			p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
			b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()),
				&natschain.Options{Create: &natschain.Storage{}, Timeout: 500 * time.Millisecond})
			begin(p)
			_, balance := b.Balance(t.Context(), chaingql.Address{})
			_, blocks := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
			for call, err := range map[string]error{"Balance": balance, "Blocks": blocks} {
				if !errors.Is(err, chaingql.ErrUnavailable) {
					t.Errorf("%s returned %v, want ErrUnavailable", call, err)
				}
			}
		})
	}
}

// TestOutageAfterPermissionViolationIsErrUnavailable stops JetStream after the server has refused another request.
func TestOutageAfterPermissionViolationIsErrUnavailable(t *testing.T) {
	s, all := guarded(t), blocks(20)
	open(t, s.as("all"), nil)
	w := writer(t, open(t, s.as("noprune"),
		&natschain.Options{Timeout: 500 * time.Millisecond, WriteTimeout: time.Second}))
	if err := w.Append(t.Context(), all[:10]...); err != nil {
		t.Fatal(err)
	}
	if err := w.Prune(t.Context(), ""); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Fatalf("Prune: got error %v, want a permissions violation", err)
	}
	if err := s.DisableJetStream(); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(t.Context(), all[10:]...); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Append: got error %v, want ErrUnavailable", err)
	}
}

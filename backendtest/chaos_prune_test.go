package backendtest

import (
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func TestAChaosThatPrunesKeepsTheContract(t *testing.T) {
	Run(t, func(t *testing.T) Harness {
		c := memchain.New()
		h := whole(c)
		forgets := Chaos(c, ChaosOptions{})
		h.Backend = forgets
		h.Prune = func(before chaingql.Cursor) error { return forgets.Prune(t.Context(), before) }
		return h
	})
}

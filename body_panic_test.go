package chaingql_test

import (
	"net/http/httptest"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A panickingReader is a request body that the host's middleware has wrapped.
type panickingReader struct{}

func (panickingReader) Read([]byte) (int, error) { panic("middleware") }

// If a body whose reader panicked still counted, the budget would later end other bodies.
func TestPanicsOfBodiesFreeTheirMemory(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	r := httptest.NewRequest("POST", "/demo/graphql", panickingReader{})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	equal(t, "status", w.Code, 500)
	bodies, _ := h.Pending()
	equal(t, "bytes of bodies", bodies, 0)
}

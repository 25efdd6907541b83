package postgres_test

import (
	"testing"

	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
)

func TestBackendPollsReadOnlyReplica(t *testing.T) {
	primary := ownServer(t, "fsync=off")
	w := writer(t, open(t, primary.dsn("postgres"), &postgres.Options{Schema: "live"}))
	all := backendtest.Chain(30, 1)
	if err := w.Append(t.Context(), all[:10]...); err != nil {
		t.Fatal(err)
	}
	s, err := primary.replica()
	s = owned(t, s, err)
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: "live"})
	if !b.Polls() {
		t.Error("the Backend of a read-only replica uses LISTEN, want polling")
	}
	r := read(t, b, "")
	r.expect(t, all[:10]...)
	for i := 10; i < 30; i += 5 {
		if err := w.Append(t.Context(), all[i:i+5]...); err != nil {
			t.Fatal(err)
		}
		r.expect(t, all[i:i+5]...)
	}
	r.stop()
	_ = r.end(t)

	_, err = b.Writer(t.Context())
	expectError(t, err, "read-only replica")
	_, err = postgres.Open(t.Context(), s.dsn("postgres"), &postgres.Options{Schema: "other"})
	expectError(t, err, "there are no tables")
}

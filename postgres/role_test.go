package postgres_test

import (
	"errors"
	"fmt"
	"math/big"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
)

// TestPermissionsInREADMEAreSufficient grants a role the permissions that README.md lists, one after another.
func TestPermissionsInREADMEAreSufficient(t *testing.T) {
	s := sharedServer(t)
	tag := fmt.Sprint(schemas.Add(1))
	owner, worker, schema := "owner"+tag, "worker"+tag, newSchema()
	name := quote(schema)
	s.admin(t, "CREATE ROLE "+owner+" LOGIN PASSWORD 'x'", "CREATE ROLE "+worker+" LOGIN PASSWORD 'x'",
		"CREATE SCHEMA "+name+" AUTHORIZATION "+owner)
	opts := &postgres.Options{Schema: schema}
	if err := writer(t, open(t, s.tcp(s.port, owner+":x", "postgres"), opts)).Append(t.Context(),
		at("01", "02", "03")...); err != nil {
		t.Fatal(err)
	}

	s.admin(t, "GRANT USAGE ON SCHEMA "+name+" TO "+worker, "GRANT SELECT ON ALL TABLES IN SCHEMA "+name+" TO "+worker)
	b := open(t, s.tcp(s.port, worker+":x", "postgres"), opts)
	r := read(t, b, "")
	r.expect(t, at("01", "02", "03")...)
	if _, err := b.Balance(t.Context(), chaingql.Address{}); !errors.Is(err, chaingql.ErrNotFound) {
		t.Error(err)
	}
	_, err := b.Writer(t.Context())
	expectError(t, err, "the role may not write")

	s.admin(t, "GRANT INSERT ON "+name+".blocks, "+name+".accounts TO "+worker,
		"GRANT UPDATE ON "+name+".accounts TO "+worker)
	w := writer(t, b)
	many := at("04")
	for i := range 30 { // enough blocks to use COPY
		many = append(many, at(chaingql.Cursor(fmt.Sprintf("1%02d", i)))...)
	}
	for i := range int64(2) {
		for _, blocks := range [][]chaingql.Block{many[:1], many} {
			if err := w.Commit(t.Context(), blocks, map[chaingql.Address]*big.Int{{}: big.NewInt(i)}); err != nil {
				t.Error(err)
			}
		}
	}
	r.expect(t, many...)
	expectError(t, w.Prune(t.Context(), "03"), "postgres: prune: ERROR: permission denied for table chaingql_state")

	s.admin(t, "GRANT DELETE ON "+name+".blocks TO "+worker, "GRANT UPDATE ON "+name+".chaingql_state TO "+worker)
	if err := w.Prune(t.Context(), "03"); err != nil {
		t.Error(err)
	}
}

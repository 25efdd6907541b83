package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// A database that refuses connections and one that does not answer are the same outage.
func TestOutageIsErrUnavailable(t *testing.T) {
	t.Parallel() // it waits for timeouts
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

// A read-only replica ends statements that conflict with a change of the primary with this SQLSTATE. Here, a function
// in a view does.
func TestReadThatServerRollsBackIsRepeated(t *testing.T) {
	s, schema := sharedServer(t), newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	q := pgx.Identifier{schema}.Sanitize() + "."
	s.admin(t, "CREATE SEQUENCE "+q+"reads",
		"CREATE FUNCTION "+q+"conflict() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"+
			" IF nextval('"+strings.ReplaceAll(q, "'", "''")+"reads') IN (1, 3, 5, 6) THEN"+
			" RAISE EXCEPTION 'canceling statement due to conflict with recovery' USING ERRCODE = '40001'; END IF;"+
			" RETURN true; END $$",
		"ALTER TABLE "+q+"chaingql_state RENAME TO state",
		"CREATE VIEW "+q+"chaingql_state AS SELECT * FROM "+q+"state WHERE "+q+"conflict()")
	if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err != nil {
		t.Errorf("Blocks: got error %v, want it to repeat the read", err)
	}
	if _, err := b.Balance(t.Context(), chaingql.Address{}); !errors.Is(err, chaingql.ErrNotFound) {
		t.Errorf("Balance: got error %v, want ErrNotFound after it has repeated the read", err)
	}
	if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); !errors.Is(err, chaingql.ErrUnavailable) {
		t.Errorf("Blocks that was rolled back twice: got error %v, want ErrUnavailable", err)
	}
}

// A role or a DSN may have timeouts of its own. They end a statement that waits for a lock before Options.Timeout does.
func TestTimeoutOfServerIsErrUnavailable(t *testing.T) {
	t.Parallel()
	s, schema := sharedServer(t), newSchema()
	open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	for _, setting := range []string{"statement_timeout", "lock_timeout"} {
		t.Run(setting, func(t *testing.T) {
			b := open(t, s.dsn("postgres")+" "+setting+"=500", &postgres.Options{Schema: schema})
			conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(context.Background()) // ends the transaction
			for _, sql := range []string{"BEGIN", "LOCK TABLE " + pgx.Identifier{schema, "chaingql_state"}.Sanitize()} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			_, err = b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
			if !errors.Is(err, chaingql.ErrUnavailable) {
				t.Errorf("Blocks: got error %v, want ErrUnavailable", err)
			}
		})
	}
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/relay"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5/pgconn"
)

const secret = "hunter2 & c/o"

func TestWhatIsWrongIsOneClearErrorAtOpen(t *testing.T) {
	s := sharedServer(t)
	tag := fmt.Sprint(schemas.Add(1))
	reader, stranger, owned := "reader"+tag, "stranger"+tag, "owned"+tag
	s.admin(t,
		"CREATE ROLE "+reader+" LOGIN PASSWORD '"+secret+"'", "CREATE ROLE "+stranger+" LOGIN PASSWORD '"+secret+"'",
		"CREATE SCHEMA "+owned, "CREATE TABLE "+owned+".blocks (their text)",
	)
	made := newSchema()
	open(t, s.dsn("postgres"), &postgres.Options{Schema: made})
	newer := newSchema()
	open(t, s.dsn("postgres"), &postgres.Options{Schema: newer})
	s.admin(t, "UPDATE "+quote(newer)+".chaingql_state SET version = 99")
	empty := newSchema()
	short, closed := newSchema(), newSchema()
	for _, schema := range []string{short, closed} {
		open(t, s.dsn("postgres"), &postgres.Options{Schema: schema})
	}
	s.admin(t, "DROP TABLE "+quote(short)+".accounts", "GRANT USAGE ON SCHEMA "+quote(closed)+" TO "+reader,
		"GRANT SELECT ON "+quote(closed)+".chaingql_state, "+quote(closed)+".accounts TO "+reader)
	quoted := "hunter2%20%26%20c%2Fo"

	for _, row := range []struct {
		name string
		dsn  string
		opts postgres.Options
		want string
	}{
		{"a DSN that is none", "postgres://app:" + secret + "@127.0.0.1:notaport/x", postgres.Options{}, "the DSN is malformed"},
		{"a key that has no value", "host=127.0.0.1 password=" + secret, postgres.Options{}, "the DSN is malformed"},
		{"a bad pool size", s.tcp(s.port, "app:"+quoted, "postgres") + "&pool_max_conns=many", postgres.Options{}, "the DSN is malformed"},
		{"a file that is not there", strings.Replace(s.tcp(s.port, "app:"+quoted, "postgres"), "sslmode=disable", "sslmode=verify-full&sslrootcert=/nowhere/ca.pem", 1), postgres.Options{}, "open /nowhere/ca.pem: no such file"},
		{"nobody there", s.tcp(1, "postgres:"+quoted, "postgres"), postgres.Options{}, "connection refused"},
		{"no such database", s.tcp(s.port, "postgres:"+quoted, "nowhere"), postgres.Options{}, `database "nowhere" does not exist`},
		{"no such role", s.tcp(s.port, "noone:"+quoted, "postgres"), postgres.Options{}, `password authentication failed for user "noone"`},
		{"a wrong password", s.tcp(s.port, reader+":"+quoted+"3", "postgres"), postgres.Options{}, "password authentication failed"},
		{"no right to make tables", s.tcp(s.port, reader+":"+quoted, "postgres"), postgres.Options{Schema: empty}, "permission denied for database"},
		{"no right to read", s.tcp(s.port, stranger+":"+quoted, "postgres"), postgres.Options{Schema: made}, "permission denied for schema"},
		{"no tables, and none are made", s.dsn("postgres"), postgres.Options{Schema: empty, SkipMigrations: true}, "there are no tables in schema"},
		{"a table that is missing", s.dsn("postgres"), postgres.Options{Schema: short}, "accounts\" does not exist"},
		{"no right to read one of them", s.tcp(s.port, reader+":"+quoted, "postgres"), postgres.Options{Schema: closed}, "permission denied for table blocks"},
		{"somebody else's table of that name", s.dsn("postgres"), postgres.Options{Schema: owned}, `relation "blocks" already exists`},
		{"tables of a newer version", s.dsn("postgres"), postgres.Options{Schema: newer}, "have version 99, and this package knows"},
		{"no name of a schema", s.dsn("postgres"), postgres.Options{Schema: strings.Repeat("x", 64)}, "no name of a schema"},
		{"a reserved name of a schema", s.dsn("postgres"), postgres.Options{Schema: "pg_chain"}, "unacceptable schema name"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := postgres.Open(t.Context(), row.dsn, &row.opts)
			if err == nil {
				b.Close()
				t.Fatal("it opens")
			}
			expectError(t, err, row.want)
		})
	}

	t.Run("a role that may only read reads, and may not write", func(t *testing.T) {
		name := quote(made)
		s.admin(t, "GRANT USAGE ON SCHEMA "+name+" TO "+reader, "GRANT SELECT ON ALL TABLES IN SCHEMA "+name+" TO "+reader)
		b := open(t, s.tcp(s.port, reader+":"+quoted, "postgres"), &postgres.Options{Schema: made})
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1}); err != nil {
			t.Error(err)
		}
		_, err := b.Writer(t.Context())
		expectError(t, err, "the role may not write to schema")
	})
	t.Run("a server that is too old", func(t *testing.T) {
		defer postgres.Need(990000)()
		_, err := postgres.Open(t.Context(), s.dsn("postgres"), nil)
		expectError(t, err, "which is too old: 99 or newer is needed")
	})
}

// expectError sees that an error is one line, says what it must, and that
// neither it nor anything it wraps has the password.
func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("the error is %v, not one line with %q", err, want)
	}
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "hunter2") {
		t.Errorf("the password is in %s", text)
	}
	var connecting *pgconn.ConnectError
	var parsing *pgconn.ParseConfigError
	if errors.As(err, &connecting) || errors.As(err, &parsing) {
		t.Errorf("%v carries the connection's settings", err)
	}
}

// TestPasswordThatIsNotQuotedIsNotRepeated has passwords that are taken for
// something else: a host, a key, a path.
func TestPasswordThatIsNotQuotedIsNotRepeated(t *testing.T) {
	s := sharedServer(t)
	for name, value := range map[string]string{"PGHOST": s.dir, "PGPORT": fmt.Sprint(s.port), "PGUSER": "postgres", "PGDATABASE": "postgres"} {
		t.Setenv(name, value)
	}
	pairs := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable ", s.port)
	const malformed, unknown, refused = "the DSN is malformed", "the DSN has a key that the server does not take", "password authentication failed"
	for _, row := range []struct{ dsn, want string }{
		{s.tcp(s.port, "app:c@hunter2", "postgres"), malformed},
		{strings.Replace(s.tcp(s.port, "app:c@hunter2", "postgres"), "127.0.0.1", "/nowhere,127.0.0.1", 1), malformed},
		{s.tcp(s.port, "app:c/hunter2", "postgres"), malformed},
		{s.tcp(s.port, "app:c hunter2", "postgres"), malformed},
		{s.tcp(s.port, "app:c%hunter2", "postgres"), malformed},
		{s.tcp(s.port, "app:c#hunter2", "postgres"), refused},
		{s.tcp(s.port, "app:c?hunter2", "postgres"), refused},
		{s.tcp(s.port, "app:c:hunter2", "postgres"), refused},
		{s.tcp(s.port, "app:c,hunter2", "postgres"), refused},
		{s.tcp(s.port, "app", "postgres") + "&password=hunter2", refused},
		{s.tcp(s.port, "app", "postgres") + "&password=c&hunter2", malformed},
		{s.tcp(s.port, "postgres", "postgres") + "&password=c&hunter2=d", unknown},
		{strings.Replace(s.tcp(s.port, "app:hunter2", "postgres"), "postgres:", "postgress:", 1), unknown},
		{strings.TrimPrefix(s.tcp(s.port, "app:hunter2", "postgres"), "postgres://"), unknown},
		{pairs + "password=c hunter2", malformed},
		{pairs + "password='c hunter2", malformed},
		{pairs + "password=c hunter2=d", unknown},
		{pairs + "password=c d.hunter2=e", ""}, // a name that an extension might have
		{pairs + "password=c 2&hunter2=d", unknown},
		{pairs + "sslmode=hunter2", malformed},
	} {
		t.Run(row.dsn, func(t *testing.T) {
			b, err := postgres.Open(t.Context(), row.dsn, &postgres.Options{Schema: newSchema()})
			if err == nil {
				b.Close()
			}
			if err != nil || row.want != "" {
				expectError(t, err, row.want)
			}
		})
	}
	pooler := &pgconn.PgError{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: hunter2"}
	if !postgres.UnknownKey(pooler, map[string]string{"hunter2": "d"}) || postgres.UnknownKey(pooler, map[string]string{"application_name": "x"}) {
		t.Error("what a pooler says of a key is not told from what it says of others")
	}
}

func TestEnvironmentThatIsMalformedIsNamed(t *testing.T) {
	t.Setenv("PGPORT", "hunter2")
	_, err := postgres.Open(t.Context(), "", nil)
	expectError(t, err, "or what it leaves to the environment (PGPORT")
}

func TestOneReasonIsToldOnce(t *testing.T) {
	_, err := postgres.Open(t.Context(), "postgres://app:hunter2@127.0.0.1:1/chain?sslmode=prefer", nil) // with TLS, then without
	expectError(t, err, "connection refused")
	if n := strings.Count(err.Error(), "connection refused"); n != 1 {
		t.Errorf("it is told %d times: %v", n, err)
	}
}

func TestServerThatIsGoneIsToldWithoutItsPassword(t *testing.T) {
	s := sharedServer(t)
	p := relay.New(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	b := open(t, s.tcp(p.Port(), "postgres:hunter2", "postgres"), nil)
	w := writer(t, b)
	p.Refuse()
	_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1})
	expectError(t, err, "postgres: read blocks: ")
	_, err = b.Balance(t.Context(), chaingql.Address{})
	expectError(t, err, "postgres: read balance: ")
	expectError(t, w.Append(t.Context(), chaingql.Block{Cursor: "00"}), "postgres: write: ")
	for _, err := range b.Follow(t.Context(), "") {
		expectError(t, err, "postgres: listen for new blocks: ")
	}
}

func TestStalledServerIsGivenUpWithoutAContext(t *testing.T) {
	s := sharedServer(t)
	p := relay.New(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	b := open(t, s.tcp(p.Port(), "postgres", "postgres"), nil)
	if _, err := b.Balances(t.Context(), []chaingql.Address{{}}); err != nil {
		t.Fatal(err)
	}
	defer p.Stall()()
	b.Hurry(time.Second)
	if _, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Blocks: %v", err)
	}
	for _, err := range b.Follow(context.Background(), "") {
		if err == nil {
			t.Error("Follow goes on")
		}
	}
}

func TestPoolerThatWasNotToldOfIsNamed(t *testing.T) {
	err := postgres.Failed("connect", &pgconn.PgError{Severity: "ERROR", Code: "42P05", Message: `prepared statement "x" already exists`})
	expectError(t, err, "behind PgBouncer in transaction mode set Options.Poll")
}

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
	"github.com/jackc/pgx/v5/pgconn"
)

// secret is the password of the roles that TestOpenReportsMisconfigurationInOneLine creates. No error may contain it.
const secret = "hunter2 & c/o"

func TestOpenReportsMisconfigurationInOneLine(t *testing.T) {
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
		{"a malformed DSN", "postgres://app:" + secret + "@127.0.0.1:notaport/x", postgres.Options{},
			"the DSN, or a setting"},
		{"a key without a value", "host=127.0.0.1 password=" + secret, postgres.Options{}, "the DSN, or a setting"},
		{"a bad pool size", s.tcp(s.port, "app:"+quoted, "postgres") + "&pool_max_conns=many", postgres.Options{},
			"the DSN, or a setting"},
		{"a missing file", strings.Replace(s.tcp(s.port, "app:"+quoted, "postgres"), "sslmode=disable",
			"sslmode=verify-full&sslrootcert=/nowhere/ca.pem", 1), postgres.Options{},
			"open /nowhere/ca.pem: no such file"},
		{"no server", s.tcp(1, "postgres:"+quoted, "postgres"), postgres.Options{}, "connection refused"},
		{"no such database", s.tcp(s.port, "postgres:"+quoted, "nowhere"), postgres.Options{},
			`database "nowhere" does not exist`},
		{"no such role", s.tcp(s.port, "noone:"+quoted, "postgres"), postgres.Options{},
			`password authentication failed for user "noone"`},
		{"a wrong password", s.tcp(s.port, reader+":"+quoted+"3", "postgres"), postgres.Options{},
			"password authentication failed"},
		{"no permission to create tables", s.tcp(s.port, reader+":"+quoted, "postgres"),
			postgres.Options{Schema: empty}, "permission denied for database"},
		{"no permission to read", s.tcp(s.port, stranger+":"+quoted, "postgres"), postgres.Options{Schema: made},
			"permission denied for schema"},
		{"no tables and SkipMigrations", s.dsn("postgres"), postgres.Options{Schema: empty, SkipMigrations: true},
			"there are no tables in schema"},
		{"a missing table", s.dsn("postgres"), postgres.Options{Schema: short}, "accounts\" does not exist"},
		{"no permission to read one table", s.tcp(s.port, reader+":"+quoted, "postgres"),
			postgres.Options{Schema: closed}, "permission denied for table blocks"},
		{"a foreign table named blocks", s.dsn("postgres"), postgres.Options{Schema: owned},
			`relation "blocks" already exists`},
		{"tables of a newer version", s.dsn("postgres"), postgres.Options{Schema: newer},
			"have version 99, which is newer"},
		{"an invalid schema name", s.dsn("postgres"), postgres.Options{Schema: strings.Repeat("x", 64)},
			"invalid Options.Schema"},
		{"a reserved schema name", s.dsn("postgres"), postgres.Options{Schema: "pg_chain"}, "unacceptable schema name"},
	} {
		t.Run(row.name, func(t *testing.T) {
			b, err := postgres.Open(t.Context(), row.dsn, &row.opts)
			if err == nil {
				b.Close()
				t.Fatal("Open returned no error")
			}
			expectError(t, err, row.want)
		})
	}

	t.Run("a read-only role can read but not write", func(t *testing.T) {
		name := quote(made)
		s.admin(t, "GRANT USAGE ON SCHEMA "+name+" TO "+reader,
			"GRANT SELECT ON ALL TABLES IN SCHEMA "+name+" TO "+reader)
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

// expectError checks that an error is one line that contains want, and that neither the error nor any error
// that it wraps contains the password or the connection settings.
func expectError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("got error %v, want one line with %q", err, want)
	}
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "hunter2") {
		t.Errorf("the error contains the password: %s", text)
	}
	var connecting *pgconn.ConnectError
	var parsing *pgconn.ParseConfigError
	if errors.As(err, &connecting) || errors.As(err, &parsing) {
		t.Errorf("error %v wraps an error of pgx that contains the connection settings", err)
	}
}

// TestErrorsOmitUnquotedPasswords uses DSNs in which special characters of the password are not quoted. pgx
// parses a part of such a password as a host, a key or a path.
func TestErrorsOmitUnquotedPasswords(t *testing.T) {
	s := sharedServer(t)
	for name, value := range map[string]string{"PGHOST": s.dir, "PGPORT": fmt.Sprint(s.port), "PGUSER": "postgres",
		"PGDATABASE": "postgres"} {
		t.Setenv(name, value)
	}
	pairs := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres sslmode=disable ", s.port)
	const malformed, unknown = "the DSN, or a setting", "the server rejects a key of the DSN"
	const refused = "password authentication failed"
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
		{pairs + "password=c d.hunter2=e", ""}, // PostgreSQL accepts d.hunter2 as a setting of an extension
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
	if !postgres.UnknownKey(pooler, map[string]string{"hunter2": "d"}) ||
		postgres.UnknownKey(pooler, map[string]string{"application_name": "x"}) {
		t.Error("UnknownKey does not distinguish the key that the error quotes from another key")
	}
}

func TestOpenReportsMalformedEnvironmentVariable(t *testing.T) {
	t.Setenv("PGPORT", "hunter2")
	_, err := postgres.Open(t.Context(), "", nil)
	expectError(t, err, "or a setting from the environment (PGPORT")
}

func TestErrorContainsRepeatedReasonOnce(t *testing.T) {
	// With this sslmode, pgx connects with TLS and then without it.
	_, err := postgres.Open(t.Context(), "postgres://app:hunter2@127.0.0.1:1/chain?sslmode=prefer", nil)
	expectError(t, err, "connection refused")
	if n := strings.Count(err.Error(), "connection refused"); n != 1 {
		t.Errorf("the error contains the reason %d times, want once: %v", n, err)
	}
}

func TestConnectionErrorsOmitPassword(t *testing.T) {
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
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

func TestTimeoutEndsReadsIfServerStalls(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	b := open(t, s.tcp(p.Port(), "postgres", "postgres"), nil)
	if _, err := b.Balances(t.Context(), []chaingql.Address{{}}); err != nil {
		t.Fatal(err)
	}
	defer p.Stall()()
	b.Hurry(time.Second)
	_, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 1})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Blocks returned error %v, want DeadlineExceeded", err)
	}
	for _, err := range b.Follow(context.Background(), "") {
		if err == nil {
			t.Error("Follow yielded a block of a stalled server, want an error")
		}
	}
}

func TestPreparedStatementErrorSuggestsPoll(t *testing.T) {
	err := postgres.Failed("connect", &pgconn.PgError{Severity: "ERROR", Code: "42P05",
		Message: `prepared statement "x" already exists`})
	expectError(t, err, "for PgBouncer in transaction mode set Options.PollInterval")
}

// The DSN names two servers. The first one accepts connections but never responds.
func TestOpenSkipsUnresponsiveServer(t *testing.T) {
	t.Parallel() // it waits for timeouts
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	defer p.Stall()()
	dsn := fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=postgres dbname=postgres sslmode=disable", p.Port(),
		s.port)
	b := open(t, dsn, &postgres.Options{Timeout: 2 * time.Second})
	if err := writer(t, b).Append(t.Context(), at("01")...); err != nil {
		t.Fatal(err)
	}
	read(t, b, "").expect(t, at("01")...)
}

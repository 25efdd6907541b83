package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
)

func TestOpenWithoutOptionsUsesTheDefaultSchema(t *testing.T) {
	s := sharedServer(t)
	database := fmt.Sprintf("defaults%d", schemas.Add(1))
	s.admin(t, "CREATE DATABASE "+database)
	b, err := postgres.Open(t.Context(), s.dsn(database), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := writer(t, b).Append(t.Context(), at("01")...); err != nil {
		t.Fatal(err)
	}
	named := open(t, s.dsn(database), &postgres.Options{Schema: "chaingql", SkipMigrations: true})
	if page, err := named.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err != nil || len(page) != 1 {
		t.Errorf("schema chaingql: got blocks %v and error %v, want the appended block", page, err)
	}
}

// TestOpenFailsIfOnlyForeignNotificationsArrive replaces pg_notify with a function that sends another payload.
func TestOpenFailsIfOnlyForeignNotificationsArrive(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	other := fmt.Sprintf("other%d", schemas.Add(1))
	s.admin(t, "CREATE SCHEMA "+other,
		"CREATE FUNCTION "+other+".pg_notify(text, text) RETURNS void LANGUAGE sql"+
			" AS $$ SELECT pg_catalog.pg_notify($1, 'foreign payload') $$")
	_, err := postgres.Open(t.Context(), s.dsn("postgres")+" options='-csearch_path="+other+",pg_catalog'",
		&postgres.Options{Schema: newSchema(), Timeout: time.Second})
	expectError(t, err, "no notification arrived")
}

func TestOpenRejectsDollarUserAsSchema(t *testing.T) {
	_, err := postgres.Open(t.Context(), sharedServer(t).dsn("postgres"), &postgres.Options{Schema: "$user"})
	expectError(t, err, "Schema must not be $user")
	open(t, sharedServer(t).dsn("postgres"), &postgres.Options{Schema: "$users"})
}

func TestSchemaNameMayHave63Bytes(t *testing.T) {
	schema := fmt.Sprintf("%063d", schemas.Add(1))
	open(t, sharedServer(t).dsn("postgres"), &postgres.Options{Schema: schema})
	open(t, sharedServer(t).dsn("postgres"), &postgres.Options{Schema: schema, SkipMigrations: true})
}

func TestTimeoutLimitsConnectionAttempts(t *testing.T) {
	s := sharedServer(t)
	for dsn, want := range map[string]time.Duration{
		"": 7 * time.Second, " connect_timeout=0": 7 * time.Second,
		" connect_timeout=3": 3 * time.Second, " connect_timeout=60": 7 * time.Second,
	} {
		b := open(t, s.dsn("postgres")+dsn, &postgres.Options{Timeout: 7 * time.Second})
		if got := b.ConnectTimeout(); got != want {
			t.Errorf("DSN with %q: got connect timeout %v, want %v", dsn, got, want)
		}
	}
}

func TestCallLimitIsThreeTimesThePool(t *testing.T) {
	for most, want := range map[int]int{1: 8, 4: 12, 7: 21} {
		b := open(t, fmt.Sprintf("%s pool_max_conns=%d", sharedServer(t).dsn("postgres"), most), nil)
		if got := b.CallLimit(); got != want {
			t.Errorf("with %d connections, CallLimit is %d, want %d", most, got, want)
		}
	}
}

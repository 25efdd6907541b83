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
		t.Errorf("schema chaingql has %v; %v", page, err)
	}
}

// TestOpenFailsIfOnlyNotificationsOfOthersArrive has a pg_notify that sends something else.
func TestOpenFailsIfOnlyNotificationsOfOthersArrive(t *testing.T) {
	s := sharedServer(t)
	other := fmt.Sprintf("other%d", schemas.Add(1))
	s.admin(t, "CREATE SCHEMA "+other,
		"CREATE FUNCTION "+other+".pg_notify(text, text) RETURNS void LANGUAGE sql"+
			" AS $$ SELECT pg_catalog.pg_notify($1, 'a word of others') $$")
	_, err := postgres.Open(t.Context(), s.dsn("postgres")+" options='-csearch_path="+other+",pg_catalog'",
		&postgres.Options{Schema: newSchema(), Timeout: time.Second})
	expectError(t, err, "no notification arrives")
}

func TestSchemaNamedUserIsRefused(t *testing.T) {
	_, err := postgres.Open(t.Context(), sharedServer(t).dsn("postgres"), &postgres.Options{Schema: "$user"})
	expectError(t, err, "Schema cannot be $user")
	open(t, sharedServer(t).dsn("postgres"), &postgres.Options{Schema: "$users"})
}

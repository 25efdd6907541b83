package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
)

// A name may have several addresses, of which the first ones accept connections but never respond.
func TestUnresponsiveAddressOfNameLeavesTimeForTheNextOne(t *testing.T) {
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	dead, alive := fmt.Sprintf("127.0.0.1:%d", p.Port()), fmt.Sprintf("127.0.0.1:%d", s.port)
	names := map[string][]string{"db.test": {dead, alive}, "a.test": {dead, "127.0.0.2:1"}, "b.test": {alive}}
	t.Cleanup(postgres.LookingUp(func(_ context.Context, name string) ([]string, error) { return names[name], nil }))
	t.Cleanup(p.Stall())
	for hosts, timeout := range map[string]time.Duration{
		"db.test": time.Second / 2, "a.test,b.test": time.Second * 2 / 5,
	} {
		t.Run(hosts, func(t *testing.T) {
			t.Parallel() // it waits for timeouts
			b := open(t, "postgres://postgres@"+hosts+"/postgres?sslmode=disable",
				&postgres.Options{Schema: newSchema(), Timeout: time.Second})
			if got := b.ConnectTimeout(); got != timeout {
				t.Errorf("got %v for each address, want %v", got, timeout)
			}
			if err := writer(t, b).Append(t.Context(), at("01")...); err != nil {
				t.Fatal(err)
			}
			read(t, b, "").expect(t, at("01")...)
		})
	}
}

func TestNamesAreLookedUpWithTheResolverOfTheProgram(t *testing.T) {
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the resolver of the program")
	}}
	_, err := postgres.Open(t.Context(), "postgres://db.test/chain", nil)
	expectError(t, err, "the resolver of the program")
}

// If the first nameserver of a system does not respond, each lookup takes seconds.
func TestConnectionThatOpensSlowlyIsUsedByLaterReads(t *testing.T) {
	s, name := sharedServer(t), fmt.Sprintf("slow%d", schemas.Add(1))
	const timeout = 200 * time.Millisecond
	var slow atomic.Bool
	t.Cleanup(postgres.LookingUp(func(context.Context, string) ([]string, error) {
		if slow.Load() {
			time.Sleep(timeout * 5 / 4)
		}
		return []string{fmt.Sprintf("127.0.0.1:%d", s.port)}, nil
	}))
	dsn := "postgres://postgres@db.test/postgres?sslmode=disable&application_name=" + name
	opts := &postgres.Options{Schema: newSchema(), Timeout: timeout}
	b := open(t, dsn, opts)
	if err := writer(t, b).Append(t.Context(), at("01")...); err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	s.admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+name+"'")
	err := errors.New("no read")
	for reads := 0; err != nil && reads < 4; reads++ {
		_, err = b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
	}
	if err != nil {
		t.Errorf("after 4 reads, Blocks still returned %v", err)
	}
	read(t, b, "").expect(t, at("01")...)
	open(t, dsn, opts)
}

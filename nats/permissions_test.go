package natschain_test

import (
	"context"
	"strings"
	"testing"
	"time"

	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestConfigurationRestrictsPublishing runs a server with the configuration in the README.
func TestConfigurationRestrictsPublishing(t *testing.T) {
	for _, user := range []string{"HOST", "INDEXER", "OPERATOR"} {
		t.Setenv(user+"_PASSWORD", password)
	}
	conf, err := server.ProcessConfigFile("testdata/permissions.conf")
	if err != nil {
		t.Fatal(err)
	}
	s := newBroker(t, func(o *server.Options) { o.Users = conf.Users })
	ctx, all := context.Background(), blocks(30)
	operator := open(t, s.as("operator"), nil)
	none := &natschain.Options{}
	indexer := writer(t, open(t, s.as("indexer"), none))
	if err := indexer.Append(ctx, all[:20]...); err != nil {
		t.Fatal(err)
	}
	host := open(t, s.as("host"), none)
	expectStored(t, host, all[:20])
	follow(t, host, "").expect(all[:20])

	if _, err := nats.Connect(s.ClientURL()); err == nil {
		t.Error("a client without a user could connect")
	}
	for _, forbidden := range []struct{ user, subject string }{
		{"host", subjectOf(&all[0])}, {"host", "chain.blocks.readme"}, {"host", "$KV.chain_balances.x"},
		{"host", "chain.index.x"}, {"indexer", "$JS.API.STREAM.DELETE.chain_index"},
		{"host", "$JS.API.STREAM.PURGE.chain_blocks"}, {"host", "$JS.API.STREAM.MSG.DELETE.chain_blocks"},
		{"host", "$JS.API.STREAM.CREATE.other"}, {"indexer", "$JS.API.STREAM.MSG.DELETE.chain_blocks"},
		{"indexer", "$JS.API.STREAM.DELETE.chain_blocks"}, {"indexer", "$JS.API.STREAM.CREATE.other"},
	} {
		refused := make(chan error, 1)
		nc, err := nats.Connect(s.as(forbidden.user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(forbidden.subject, []byte("{}")); err != nil {
			t.Error(err)
		}
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), "Permissions Violation") &&
				!strings.Contains(err.Error(), "permissions violation") {
				t.Errorf("%s publishes to %s: got error %v, want a permissions violation", forbidden.user,
					forbidden.subject, err)
			}
		case <-time.After(patience):
			t.Errorf("%s may publish to %s", forbidden.user, forbidden.subject)
		}
		nc.Close()
	}
	if _, err := raw(t, s.as("operator")).Publish(ctx, "chain.blocks.readme", nil); err != nil {
		t.Fatal(err)
	}
	if err := indexer.Append(ctx, all[20:]...); err != nil {
		t.Fatal(err)
	}
	if err := operator.RemoveStray(ctx, 21); err != nil {
		t.Error(err)
	}
	expectStored(t, host, all)
}

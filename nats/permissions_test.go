package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// newConfiguredBroker starts a server with the configuration in the README.
func newConfiguredBroker(t *testing.T, change ...func(*server.Options)) *broker {
	t.Helper()
	for _, user := range []string{"HOST", "INDEXER", "OPERATOR"} {
		t.Setenv(user+"_PASSWORD", password)
	}
	conf, err := server.ProcessConfigFile("testdata/permissions.conf")
	if err != nil {
		t.Fatal(err)
	}
	configure := func(o *server.Options) { o.Accounts, o.Users = conf.Accounts, conf.Users }
	return newBroker(t, append(change, configure)...)
}

// TestREADMEConfigurationRestrictsPublishing runs a server with the configuration in the README. Each
// user must be able to do its job, but must not publish to other subjects.
func TestREADMEConfigurationRestrictsPublishing(t *testing.T) {
	s := newConfiguredBroker(t)
	ctx, all := context.Background(), blocks(30)
	operator := open(t, s.as("operator"), nil)
	none := &natschain.Options{}
	indexer := writer(t, open(t, s.as("indexer"), none))
	if err := indexer.Append(ctx, all[:20]...); err != nil {
		t.Fatal(err)
	}
	host := open(t, s.as("host"), none)
	expectStored(t, host, all[:20])
	live := follow(t, host, "")
	live.expect(all[:20])

	if _, err := nats.Connect(s.ClientURL()); err == nil {
		t.Error("Connect without a user: got no error, want an error")
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
				t.Errorf("publish to %s as user %s: got error %v, want a permissions violation", forbidden.subject,
					forbidden.user, err)
			}
		case <-time.After(patience):
			t.Errorf("publish to %s as user %s: got no error, want a permissions violation", forbidden.subject,
				forbidden.user)
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
	live.expect(all[20:])
}

// TestHostCannotChangeStreamsByItsRequests sends the requests of hosts with reply subjects that belong to streams or to
// the JetStream API, and creates consumers that deliver to these subjects. The server must neither store its responses
// nor treat them as requests.
func TestHostCannotChangeStreamsByItsRequests(t *testing.T) {
	s, ctx, all := newConfiguredBroker(t), context.Background(), blocks(300)
	operator := open(t, s.as("operator"), nil)
	w := writer(t, operator)
	if err := errors.Join(w.Append(ctx, all...), w.SetBalance(ctx, chaingql.Address{}, big.NewInt(7))); err != nil {
		t.Fatal(err)
	}
	js := raw(t, s.as("operator"))
	state := func() (all string) {
		for _, name := range []string{"chain_blocks", "chain_index", "KV_chain_balances"} {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprintf("%s %+v\n", name, stream.CachedInfo().State)
		}
		return all
	}
	nc, err := nats.Connect(s.as("host"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const consumer = `{"stream_name":"chain_blocks","config":{"name":%q,"deliver_subject":%q,"headers_only":true,` +
		`"deliver_policy":"all","ack_policy":"none","replay_policy":"instant"}}`
	create := func(name, deliver string) {
		m, err := nc.Request("$JS.API.CONSUMER.CREATE.chain_blocks."+name, fmt.Appendf(nil, consumer, name, deliver),
			patience)
		if err != nil || strings.Contains(string(m.Data), "error") {
			t.Fatalf("creating a consumer that delivers to %q: got response %v and error %v", deliver, m, err)
		}
	}
	create("x", "")
	for i, deliver := range []string{"chain.index.0", "$KV.chain_balances.x", "$JS.API.STREAM.DELETE.chain_blocks"} {
		create(fmt.Sprint(i), deliver)
	}
	before := state()
	for _, reply := range []string{
		subjectOf(&all[0]), "chain.index.0", "$KV.chain_balances.x",
		"$JS.API.STREAM.PURGE.chain_blocks", "$JS.API.STREAM.DELETE.chain_blocks",
	} {
		for _, request := range [][2]string{
			{"$JS.API.STREAM.INFO.chain_blocks", ""}, {"$JS.API.STREAM.MSG.GET.chain_blocks", `{"seq":1}`},
			{"$JS.API.DIRECT.GET.chain_blocks", `{"seq":1}`},
			{"$JS.API.DIRECT.GET.chain_blocks", `{"seq":1000}`}, // the response is empty, except for headers
			{"$JS.API.CONSUMER.CREATE.chain_blocks.x", fmt.Sprintf(consumer, "x", "")},
			{"$JS.API.CONSUMER.MSG.NEXT.chain_blocks.x", `{"batch":3}`},
		} {
			if err := nc.PublishRequest(request[0], reply, []byte(request[1])); err != nil {
				t.Fatal(err)
			}
		}
	}
	m, err := nc.Request("$JS.API.CONSUMER.MSG.NEXT.chain_blocks.x", []byte(`{"batch":1}`), patience)
	if err != nil || m.Header.Get("Status") != "" {
		t.Fatalf("the request for the next message: got response %v and error %v, want a message", m, err)
	}
	if after := state(); after != before {
		t.Errorf("the state of the streams changed from\n%sto\n%s", before, after)
	}
	host := open(t, s.as("host"), &natschain.Options{})
	expectStored(t, host, all)
	if nano, err := host.Balance(ctx, chaingql.Address{}); err != nil || nano.Int64() != 7 {
		t.Errorf("got balance %v and error %v, want 7", nano, err)
	}
}

// TestPermissionsInREADMEAreSufficient grants each user only the permissions that the README lists for
// a task. Each user must be able to perform its task.
func TestPermissionsInREADMEAreSufficient(t *testing.T) {
	t.Parallel()
	serves := []string{"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.chain_blocks",
		"$JS.API.CONSUMER.CREATE.chain_blocks.*", "$JS.API.CONSUMER.DELETE.chain_blocks.*",
		"$JS.API.CONSUMER.MSG.NEXT.chain_blocks.*"}
	writes := append(slices.Clone(serves), "chain.blocks.>", "$KV.chain_balances.>")
	prunes := append(slices.Clone(writes), "$JS.API.STREAM.PURGE.chain_blocks")
	makes := append(slices.Clone(serves), "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.UPDATE.chain_blocks",
		"$JS.API.INFO")
	user := func(name string, may []string) *server.User {
		return &server.User{Username: name, Password: password, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: may},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}}
	}
	s := newBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			user("serves", serves), user("writes", writes), user("prunes", prunes), user("makes", makes),
		}
	})
	ctx, all, none := context.Background(), blocks(50), &natschain.Options{}
	open(t, s.as("makes"), nil)
	w := writer(t, open(t, s.as("writes"), none))
	if err := errors.Join(w.Append(ctx, all...), w.SetBalance(ctx, chaingql.Address{}, big.NewInt(1))); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.as("serves"), none)
	expectStored(t, b, all)
	follow(t, b, all[9].Cursor).expect(all[10:])
	if _, err := b.Balance(ctx, chaingql.Address{}); err != nil {
		t.Error(err)
	}
	if err := w.Prune(ctx, all[20].Cursor); err == nil ||
		!strings.Contains(err.Error(), "prune: nats: permissions violation") {
		t.Errorf("Prune without permission: got error %v, want a permissions violation", err)
	}
	if err := writer(t, open(t, s.as("prunes"), none)).Prune(ctx, all[20].Cursor); err != nil {
		t.Error(err)
	}
	expectStored(t, b, all[20:])
}

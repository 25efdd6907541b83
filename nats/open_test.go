package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const password = "s3cret-and-more"

// guarded starts a server with several users, each of which lacks a different permission.
func guarded(t *testing.T) *broker {
	may := func(denied ...string) *server.Permissions {
		return &server.Permissions{Publish: &server.SubjectPermission{Allow: []string{">"}, Deny: denied}}
	}
	return newBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: password},
			{Username: "noinfo", Password: password, Permissions: may("$JS.API.STREAM.INFO.*")},
			{Username: "noget", Password: password, Permissions: may("$JS.API.STREAM.MSG.GET.chain_blocks")},
			{Username: "nobatch", Password: password, Permissions: may("$JS.API.DIRECT.GET.>")},
			{Username: "nobalance", Password: password, Permissions: may("$JS.API.STREAM.MSG.GET.KV_chain_balances")},
			{Username: "noconsumer", Password: password, Permissions: may("$JS.API.CONSUMER.>")},
			{Username: "nocreate", Password: password, Permissions: may("$JS.API.STREAM.CREATE.>")},
			{Username: "noupdate", Password: password, Permissions: may("$JS.API.STREAM.UPDATE.>")},
			{Username: "noprune", Password: password, Permissions: may("$JS.API.STREAM.PURGE.>")},
			{Username: "nobox", Password: password,
				Permissions: &server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}}},
			{Username: "reader", Password: password, Permissions: may("chain.>", "$KV.>")},
		}
	})
}

func (b *broker) as(user string) string {
	return fmt.Sprintf("nats://%s:%s@127.0.0.1:%d", user, password, b.port())
}

// TestOpenReportsMisconfigurationInOneLine opens Backends with different mistakes in the configuration.
// Each error must have one line and must not contain the password.
func TestOpenReportsMisconfigurationInOneLine(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	open(t, s.as("all"), nil)
	without := newBroker(t, func(o *server.Options) { o.JetStream = false })
	empty := newBroker(t)
	nobody := testkit.FreeAddress(t)
	half := newBroker(t)
	if _, err := raw(t, half.ClientURL()).CreateStream(context.Background(),
		jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"chain.blocks.>"}, AllowDirect: true},
	); err != nil {
		t.Fatal(err)
	}
	none, three := natschain.Options{}, natschain.Options{Create: &natschain.Storage{Replicas: 3}}
	rows := []struct {
		name, url string
		opts      natschain.Options
		want      string
	}{
		{"no server", "nats://all:" + password + "@" + nobody, none, "connect: nats: no servers available"},
		{"a wrong password", strings.Replace(s.as("all"), password, "wrong", 1), none,
			"connect: nats: Authorization Violation"},
		{"no password", s.ClientURL(), none, "connect: nats: Authorization Violation"},
		{"a malformed URL", "nats://all:" + password + "@127.0.0.1:port", none, "the URL is malformed"},
		{"one malformed URL of several", s.as("all") + ",nats://%zz:" + password + "@h", none, "the URL is malformed"},
		{"a URL without a host", "nats://", none, "the URL is malformed"},
		{"a token with a slash", "nats://" + password + "/x@" + s.Addr().String(), none, "the URL is malformed"},
		{"a token with a question mark", "nats://" + password + "?x@" + s.Addr().String(), none,
			"the URL is malformed"},
		{"a token with a hash", "ws://" + password + "#x@" + s.Addr().String(), none, "the URL is malformed"},
		{"a token without a scheme", password + "/x@" + s.Addr().String(), none, "the URL is malformed"},
		{"a password with a slash", "nats://all:" + password + "/x@" + s.Addr().String(), none, "the URL is malformed"},
		{"a password with an @", "nats://all:x@" + password + "@" + s.Addr().String(), none,
			"connect: nats: Authorization Violation"},
		{"a password with a comma", "nats://all:" + password + ",x@" + s.Addr().String(), none, "the URL is malformed"},
		{"an invalid chain name", s.as("all"), natschain.Options{Chain: "a.b"}, "invalid Options.Chain"},
		{"a missing credentials file", s.ClientURL(),
			natschain.Options{Connect: []nats.Option{nats.UserCredentials("/nowhere.creds")}}, "connect: nats: "},
		{"no JetStream", without.ClientURL(), none, "JetStream is not enabled on the server, or not for this account"},
		{"no stream", empty.ClientURL(), none,
			`the stream "chain_blocks" does not exist: set Options.Create to create it`},
		{"no bucket", half.ClientURL(), none,
			`the key-value bucket "chain_balances" does not exist: set Options.Create to create it`},
		{"more replicas than servers", empty.ClientURL(), three, `create the stream "chain_blocks": nats: API error`},
		{"no permission to subscribe", s.as("nobox"), none,
			`read the state of the stream "chain_blocks": nats: permissions violation`},
		{"no permission to read stream information", s.as("noinfo"), none,
			`read the state of the stream "chain_blocks": nats: permissions violation`},
		{"no permission to read", s.as("noget"), none, "cannot read the stream: nats: permissions violation"},
		{"no permission to read batches", s.as("nobatch"), none,
			"cannot read the stream in batches: nats: permissions violation"},
		{"no permission to read balances", s.as("nobalance"), none,
			"cannot read the bucket: nats: permissions violation"},
		{"no permission to create a consumer", s.as("noconsumer"), none,
			"cannot create a consumer of the stream: nats: permissions violation"},
		{"no permission to create a stream", s.as("nocreate"),
			natschain.Options{Chain: "other", Create: &natschain.Storage{}},
			`create the stream "other_blocks": nats: permissions violation`},
	}
	errs := make([]error, len(rows))
	var opening sync.WaitGroup
	start := time.Now()
	for i, row := range rows { // concurrently, because many calls wait for a timeout
		opening.Go(func() {
			var b *natschain.Backend
			if b, errs[i] = natschain.Open(context.Background(), row.url, &row.opts); errs[i] == nil {
				b.Close()
			}
		})
	}
	opening.Wait()
	if took := time.Since(start); took > patience {
		t.Errorf("all Open calls took %v, want at most %v", took, patience)
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			err := errs[i]
			if err == nil {
				t.Fatal("Open returned no error, want an error")
			}
			if !strings.HasPrefix(err.Error(), "natschain: ") || !strings.Contains(err.Error(), row.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got error %q, want one line that contains %q", err, row.want)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), password) {
				t.Errorf("error %q contains the password", err)
			}
		})
	}
}

// expectUnsuitable creates a stream and checks that Open fails with an error that contains want.
func expectUnsuitable(t *testing.T, s *broker, chain string, c jetstream.StreamConfig, name, want string) {
	t.Helper()
	if _, err := raw(t, s.ClientURL()).CreateStream(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	b, err := natschain.Open(context.Background(), s.ClientURL(),
		&natschain.Options{Chain: chain, Create: &natschain.Storage{}})
	if err == nil {
		b.Close()
		t.Errorf("%s: Open returned no error, want an error", name)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got error %q, want one that contains %q", name, err, want)
	}
}

func TestOpenRejectsUnsuitableStream(t *testing.T) {
	s := newBroker(t)
	good := jetstream.StreamConfig{AllowDirect: true}
	for i, row := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		want   string
	}{
		{"work-queue retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
			"its retention policy is WorkQueue"},
		{"interest retention", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			"its retention policy is Interest"},
		{"no direct gets", func(c *jetstream.StreamConfig) { c.AllowDirect = false }, "it does not allow direct gets"},
		{"a limit of messages per subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
			"it limits the number of messages per subject"},
		{"rollup headers", func(c *jetstream.StreamConfig) { c.AllowRollup = true }, "it lets one message remove"},
		{"messages that expire", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true },
			"it lets individual messages expire"},
	} {
		chain, c := fmt.Sprint("c", i), good
		c.Name, c.Subjects = chain+"_blocks", []string{chain + ".blocks.>"}
		row.change(&c)
		expectUnsuitable(t, s, chain, c, row.name, row.want)
	}
}

func TestOpenRejectsUnsuitableBucket(t *testing.T) {
	s := newBroker(t)
	for i, row := range []struct {
		name, want string
		change     func(*jetstream.StreamConfig)
	}{
		{"values that expire", "its values expire after 1h0m0s",
			func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		{"old values that are dropped when the bucket is full", "it drops the oldest values",
			func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 1<<20, jetstream.DiscardOld }},
	} {
		chain := fmt.Sprint("c", i)
		c := jetstream.StreamConfig{Name: "KV_" + chain + "_balances", MaxMsgsPerSubject: 1,
			Subjects: []string{"$KV." + chain + "_balances.>"}, Discard: jetstream.DiscardNew}
		row.change(&c)
		expectUnsuitable(t, s, chain, c, row.name, row.want)
	}
}

func TestOpenRejectsStreamWithGaps(t *testing.T) {
	s := newBroker(t)
	js, ctx := raw(t, s.ClientURL()), context.Background()
	stream, err := js.CreateStream(ctx,
		jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"chain.blocks.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	w := writer(t, open(t, s.ClientURL(), nil))
	if err := w.Append(ctx, blocks(10)...); err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := natschain.Open(ctx, s.ClientURL(), nil); err == nil ||
		!strings.Contains(err.Error(), "it has gaps (deleted messages: 1)") {
		t.Errorf("Open: got error %v, want one about gaps", err)
	}
}

func TestOpenRejectsOldServer(t *testing.T) {
	s := newBroker(t)
	defer natschain.Need(3, 0)()
	if _, err := natschain.Open(context.Background(), s.ClientURL(), nil); err == nil ||
		!strings.Contains(err.Error(), "which is too old: 3.0 or newer is needed") {
		t.Errorf("Open: got error %v, want one about the server's version", err)
	}
}

func TestBackendWithoutPublishPermissionReturnsNoWriter(t *testing.T) {
	t.Parallel()
	s := guarded(t)
	open(t, s.as("all"), nil)
	b := open(t, s.as("reader"), &natschain.Options{})
	if _, err := b.Writer(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "cannot write to chain.blocks.0.0000000000000000: nats: permissions violation") {
		t.Errorf("Backend.Writer: got error %v, want a permissions violation", err)
	}
}

func TestBackendReturnsNoWriterIfNoStreamAcceptsBlocks(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	ctx := context.Background()
	if _, err := raw(t, s.ClientURL()).CreateStream(ctx,
		jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"other.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), nil)
	_, err := b.Writer(ctx)
	if err == nil || !strings.Contains(err.Error(), "no stream accepts messages with the subject chain.blocks.") {
		t.Errorf("Backend.Writer: got error %v, want one about a missing stream", err)
	}
}

func TestOpenDoesNotChangeExistingStream(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	open(t, s.ClientURL(), &natschain.Options{Create: &natschain.Storage{MaxBytes: 1 << 20, MaxAge: time.Hour,
		Memory: true, Duplicates: time.Minute}})
	open(t, s.ClientURL(), nil)
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if c := stream.CachedInfo().Config; c.MaxBytes != 1<<20 || c.MaxAge != time.Hour ||
		c.Storage != jetstream.MemoryStorage || c.Duplicates != time.Minute {
		t.Errorf("after another Open: got stream configuration %+v, want the original one", c)
	}
}

// TestStreamOfEarlierVersionCanBeReadAndWritten uses a stream that does not allow atomic batches, like
// those of earlier versions. With Options.Create, Open must allow batches; without, it must not.
func TestStreamOfEarlierVersionCanBeReadAndWritten(t *testing.T) {
	for _, create := range []*natschain.Storage{nil, {}} {
		s, ctx, all := newBroker(t), context.Background(), blocks(60)
		js := raw(t, s.ClientURL())
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "chain_blocks", Subjects: []string{"chain.blocks.>"}, AllowDirect: true, DenyDelete: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "chain_balances"}); err != nil {
			t.Fatal(err)
		}
		prev := chaingql.Cursor("")
		for i := range all[:20] {
			m := nats.NewMsg(subjectOf(&all[i]))
			text := payloadOf(&all[i])
			m.Data = fmt.Appendf(text[:len(text)-1], `,"prev":%q}`, prev)
			m.Header.Set("Nats-Msg-Id", fmt.Sprintf("%s.%x", all[i].Cursor, all[i].Hash[:8]))
			if i > 0 {
				m.Header.Set("Nats-Expected-Last-Msg-Id", fmt.Sprintf("%s.%x", prev, all[i-1].Hash[:8]))
			}
			if _, err := js.PublishMsg(ctx, m); err != nil {
				t.Fatal(err)
			}
			prev = all[i].Cursor
		}
		b := open(t, s.ClientURL(), &natschain.Options{Create: create})
		if err := writer(t, b).Append(ctx, all[10:]...); err != nil {
			t.Error(err)
		}
		expectStored(t, b, all)
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.Config.AllowAtomicPublish != (create != nil) {
			t.Errorf("Open with Options.Create %+v: got AllowAtomicPublish %v, want %v", create,
				info.Config.AllowAtomicPublish, create != nil)
		}
	}
}

// TestOpenStopsConnectingWhenItsContextIsDone opens a Backend on a server that accepts connections and never answers.
func TestOpenStopsConnectingWhenItsContextIsDone(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	accepted := make(chan net.Conn, 1)
	go func() {
		defer close(accepted)
		if c, err := silent.Accept(); err == nil {
			accepted <- c
			cancel()
		}
	}()
	_, err = natschain.Open(ctx, "nats://"+silent.Addr().String(), &natschain.Options{Timeout: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open returned %v, want an error that wraps context.Canceled", err)
	}
	if c := <-accepted; c != nil {
		c.Close()
	}
}

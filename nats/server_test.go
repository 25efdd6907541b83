package natschain_test

import (
	"context"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// patience is the maximum wait for an event that must happen.
const patience = 20 * time.Second

// A broker is a NATS server in the process of the test. It has its own data directory.
type broker struct {
	t    testing.TB
	opts server.Options
	*server.Server
}

// newBroker starts a server on 127.0.0.1 and stops it at the end of the test.
func newBroker(t testing.TB, change ...func(*server.Options)) *broker {
	t.Helper()
	port, err := testkit.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, opts: server.Options{
		Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	for _, c := range change {
		c(&b.opts)
	}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	opts := b.opts
	s, err := server.NewServer(&opts)
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		b.t.Fatalf("the NATS server was not ready for connections within %v", patience)
	}
	b.Server = s
}

func (b *broker) stop() {
	b.Shutdown()
	b.WaitForShutdown()
}

func (b *broker) port() int { return b.opts.Port }

// open opens a Backend and closes it at the end of the test. If opts is nil, open also creates missing
// streams and the bucket.
func open(t testing.TB, url string, opts *natschain.Options) *natschain.Backend {
	t.Helper()
	o := natschain.Options{Create: &natschain.Storage{}}
	if opts != nil {
		o = *opts
	}
	b, err := natschain.Open(context.Background(), url, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func writer(t testing.TB, b *natschain.Backend) *natschain.Writer {
	t.Helper()
	w, err := b.Writer(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// appendNew appends blocks with a new Backend and a new Writer, as an indexer does after a restart.
func (b *broker) appendNew(t testing.TB, blocks []chaingql.Block) {
	t.Helper()
	if err := writer(t, open(t, b.ClientURL(), (&logbook{}).options())).Append(t.Context(), blocks...); err != nil {
		t.Fatal(err)
	}
}

// publishStray publishes a message that is not a block with the subject of block.
func (b *broker) publishStray(t testing.TB, block *chaingql.Block) {
	t.Helper()
	if _, err := raw(t, b.ClientURL()).Publish(t.Context(), subjectOf(block), []byte("junk")); err != nil {
		t.Fatal(err)
	}
}

// raw returns a JetStream client. Tests use it to act like other programs that change a stream.
func raw(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

package natschain_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// newConfiguredCluster starts three servers with the configuration in the README, and creates a chain with three
// replicas. It returns the servers and a Writer.
func newConfiguredCluster(t *testing.T) (servers []*broker, w *natschain.Writer) {
	t.Helper()
	cluster := make([]server.ClusterOpts, 3)
	var routes []*url.URL
	for i := range cluster {
		port, err := testkit.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		cluster[i] = server.ClusterOpts{Name: "cluster", Host: "127.0.0.1", Port: port}
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	for i := range cluster {
		servers = append(servers, newConfiguredBroker(t, func(o *server.Options) {
			o.ServerName, o.Cluster, o.Routes = fmt.Sprint("server", i), cluster[i], routes
		}))
	}
	opts := &natschain.Options{Create: &natschain.Storage{Replicas: 3}}
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		b, err := natschain.Open(context.Background(), servers[0].as("operator"), opts)
		if err == nil {
			t.Cleanup(b.Close)
			return servers, writer(t, b)
		}
		if time.Since(begun) > patience { // until then, the servers may not have elected a leader
			t.Fatal(err)
		}
	}
}

// TestREADMEConfigurationServesAllHostsOfCluster connects a host to each server of a cluster, so that requests and
// responses cross both accounts and servers. The reply subjects of some requests belong to the streams and to the
// JetStream API.
func TestREADMEConfigurationServesAllHostsOfCluster(t *testing.T) {
	servers, w := newConfiguredCluster(t)
	ctx, all := context.Background(), blocks(1500)
	if err := w.Append(ctx, all[:1000]...); err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		nc, err := nats.Connect(s.as("host"))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		for _, reply := range []string{subjectOf(&all[0]), "$JS.API.STREAM.DELETE.chain_blocks"} {
			for range 10 { // any server responds
				err := nc.PublishRequest("$JS.API.DIRECT.GET.chain_blocks", reply, []byte(`{"seq":9999}`))
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	var live []*reading
	for _, s := range servers {
		host := open(t, s.as("host"), &natschain.Options{})
		expectStored(t, host, all[:1000])
		live = append(live, follow(t, host, all[99].Cursor))
	}
	for _, r := range live {
		r.expect(all[100:1000])
	}
	for from := 1000; from < len(all); from += 100 {
		if err := w.Append(ctx, all[from:from+100]...); err != nil {
			t.Fatal(err)
		}
		for _, r := range live {
			r.expect(all[from : from+100])
		}
	}
	stream, err := raw(t, servers[0].as("operator")).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if state := stream.CachedInfo().State; state.LastSeq != uint64(len(all)) {
		t.Errorf("the stream has the state %+v, want only the %d blocks", state, len(all))
	}
}

package main

import (
	"cmp"
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
)

var (
	subscribers = flag.Int("cluster.subscribers", 300,
		"number of subscribers, half of them over WebSockets and half over event streams")
	rate   = flag.Float64("cluster.rate", 30, "blocks per second")
	rounds = flag.Int("cluster.rounds", 1,
		"how often each broker and each host is stopped and started again; at the end, all brokers stop together once")
	limit  = flag.Duration("cluster.for", 5*time.Minute, "maximum duration of a run")
	forget = flag.Bool("cluster.forget", false, "subscribers reconnect without a cursor, so that the test must fail")
	logs   = flag.Bool("cluster.log", false, "print the log lines of the hosts")
)

// TestClusterDeliversEachBlockOnce kills brokers, and kills or stops hosts, while
// subscribers read. Each subscriber must receive every appended block after its first
// cursor exactly once and in order.
func TestClusterDeliversEachBlockOnce(t *testing.T) {
	lost, twice := live(t, *subscribers, *rounds, *forget)
	if lost+twice > 0 {
		t.Errorf("subscribers lost %d blocks and received %d repeated or out of order, want none", lost, twice)
	}
}

// TestReconnectWithoutCursorLosesBlocks shows that the check in
// TestClusterDeliversEachBlockOnce finds lost blocks: subscribers that reconnect without a
// cursor must lose some.
func TestReconnectWithoutCursorLosesBlocks(t *testing.T) {
	if lost, _ := live(t, 12, 0, true); lost == 0 {
		t.Error("subscribers that reconnected without a cursor lost no blocks, want some")
	}
}

// live runs a cluster with n subscribers while brokers and hosts fail. It returns how many
// blocks all subscribers together lost, and how many they received repeatedly or out of
// order.
func live(t *testing.T, n, rounds int, forget bool) (lost, twice int) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	out := slog.DiscardHandler
	if *logs {
		out = slog.NewTextHandler(os.Stderr, nil)
	}
	start := time.Now()
	c, err := newCluster(ctx, t.TempDir(), "127.0.0.1:0", ownProcess, slog.New(out))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the cluster serves requests after %v", time.Since(start).Round(time.Millisecond))

	p := newProducer(t, c.brokers.urls())
	p.append(ctx, early)
	var reading, producing sync.WaitGroup
	people := make([]*subscriber, n)
	reads, leave := context.WithCancel(ctx)
	wire := &http.Transport{DisableKeepAlives: true}
	for i := range people {
		begin := p.chain[rand.IntN(early)].Cursor
		people[i] = &subscriber{address: c.proxy.addr, begin: begin, socket: i%2 == 0, forget: forget,
			client: &http.Client{Transport: wire}}
		reading.Go(func() { people[i].run(reads) })
	}
	producing.Go(func() { p.run(ctx) })
	defer func() { // in case disasters ends the test with Fatal
		p.over.Store(true)
		leave()
		producing.Wait()
		reading.Wait()
	}()
	disasters(t, c, rounds)
	p.over.Store(true)
	producing.Wait()

	last := p.chain[p.n.Load()-1].Cursor
	all := func() bool {
		return !slices.ContainsFunc(people, func(s *subscriber) bool { at, _ := s.at(); return at < last })
	}
	for end := time.Now().Add(patience); !all() && ctx.Err() == nil && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
	}
	leave()
	reading.Wait()
	if err := c.close(); err != nil {
		t.Errorf("closing the cluster: got error %v, want none", err)
	}
	connections, delivered := 0, 0
	for i, s := range people {
		l, w := p.judge(s)
		if (l > 0 || w > 0) && lost+twice == 0 && !forget {
			t.Errorf("subscriber %d from cursor %q: got %d blocks lost, %d repeated or out of order, last block %q, "+
				"want none and last block %q", i, s.begin, l, w, s.got[max(0, len(s.got)-1):], last)
		}
		lost, twice, connections, delivered = lost+l, twice+w, connections+s.connections, delivered+len(s.got)
		if s.wrong != "" {
			t.Errorf("subscriber %d received the error %s, which a healthy chain never returns", i, s.wrong)
		}
	}
	t.Logf("%d blocks to %d subscribers in %v: %d delivered over %d connections, "+
		"%d lost, %d repeated or out of order; longest wait of the producer %v",
		p.n.Load(), n, time.Since(start).Round(time.Second), delivered, connections, lost, twice,
		p.longest.Round(time.Millisecond))
	if connections < 2*n {
		t.Errorf("got %d connections of %d subscribers, want at least two per subscriber", connections, n)
	}
	return lost, twice
}

// patience is the maximum wait for an event that must happen.
const patience = time.Minute

// early is the number of blocks that are appended before the first subscription.
const early = 200

// disasters kills each broker and ends each host, one after the other, in the given number
// of rounds. It ends hosts alternately by kill and by stop. At the end it kills all brokers
// at once. If rounds is 0, it only ends each host once.
func disasters(t *testing.T, c *cluster, rounds int) {
	t.Helper()
	calm := func() { time.Sleep(time.Second) } // lets blocks flow and servers reconnect before the next disaster
	calm()
	ended := 0
	host := func(h *host) {
		end := h.kill
		if ended++; ended%2 == 0 {
			end = func() error { return h.stop(drain) }
		}
		if err := end(); err != nil {
			t.Errorf("ending a host: got error %v, want none", err)
		}
		calm()
		start := time.Now()
		for err := h.start(context.Background()); err != nil; err = h.start(context.Background()) {
			// A supervisor would also restart the host until the brokers have a leader.
			if time.Since(start) > patience {
				t.Fatalf("a host did not start within %v: %v", patience, err)
			}
			t.Logf("starting a host failed, retrying: %v", err)
		}
		calm()
	}
	for range rounds {
		for i := range machines {
			c.brokers.stop(i)
			host(c.hosts[i]) // starts while a broker is down
			if err := c.brokers.start(i); err != nil {
				t.Error(err)
			}
			if !c.brokers.current(i, patience) {
				t.Errorf("broker %d did not catch up with the others within %v", i, patience)
			}
		}
	}
	if rounds == 0 {
		for _, h := range c.hosts {
			host(h)
		}
		return
	}
	c.brokers.close()
	calm()
	for i := range machines {
		if err := c.brokers.start(i); err != nil {
			t.Error(err)
		}
	}
	for i := range machines {
		if !c.brokers.current(i, patience) {
			t.Errorf("broker %d did not catch up with the others within %v", i, patience)
		}
	}
	calm()
}

// A producer appends the blocks of a chain that the test knows in advance.
type producer struct {
	t       *testing.T
	w       *natschain.Writer
	chain   []chaingql.Block
	n       atomic.Int64  // number of appended blocks
	over    atomic.Bool   // makes run return
	longest time.Duration // longest duration of an Append call
}

func newProducer(t *testing.T, brokers string) *producer {
	b, err := natschain.Open(context.Background(), brokers, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w, err := b.Writer(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return &producer{t: t, w: w, chain: backendtest.Chain(200_000, 7)}
}

func (p *producer) append(ctx context.Context, n int) {
	at := p.n.Load()
	start := time.Now()
	if err := p.w.Append(ctx, p.chain[at:at+int64(n)]...); err != nil {
		p.t.Errorf("Append by the producer: got error %v, want none", err)
		p.over.Store(true)
		return
	}
	p.longest = max(p.longest, time.Since(start))
	p.n.Add(int64(n))
}

func (p *producer) run(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / *rate))
	defer tick.Stop()
	for !p.over.Load() && ctx.Err() == nil {
		p.append(ctx, 1)
		<-tick.C
	}
}

// judge compares the blocks that a subscriber received with the appended blocks. It returns
// the number of lost blocks, and the number of blocks that are wrong because they were
// repeated or out of order.
func (p *producer) judge(s *subscriber) (lost, wrong int) {
	first, _ := slices.BinarySearchFunc(p.chain, s.begin,
		func(b chaingql.Block, c chaingql.Cursor) int { return cmp.Compare(b.Cursor, c) })
	due := map[chaingql.Cursor]bool{}
	for _, b := range p.chain[first+1 : p.n.Load()] {
		due[b.Cursor] = true
	}
	newest := s.begin
	for _, c := range s.got {
		if !due[c] || c <= newest {
			wrong++
		}
		delete(due, c)
		newest = max(newest, c)
	}
	return len(due), wrong
}

func TestMain(m *testing.M) {
	if config := os.Getenv(asBroker); config != "" {
		os.Exit(serve(config))
	}
	flag.Parse()
	testkit.RunWithoutLeaks(m, 10*time.Second, "chaingql", "nats-io/nats.go")
}

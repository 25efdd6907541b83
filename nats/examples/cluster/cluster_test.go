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
	"github.com/chaingql/chaingql/internal/leak"
	natschain "github.com/chaingql/chaingql/nats"
)

var (
	subscribers = flag.Int("cluster.subscribers", 300,
		"subscribers, half of them over sockets and half over event streams")
	rate   = flag.Float64("cluster.rate", 30, "blocks a second")
	rounds = flag.Int("cluster.rounds", 1,
		"how often each broker and each host is taken down and started again, and once all brokers")
	limit  = flag.Duration("cluster.for", 5*time.Minute, "how long a run may take")
	forget = flag.Bool("cluster.forget", false, "have subscribers come back without a cursor, which must fail")
	logs   = flag.Bool("cluster.log", false, "show the hosts' log")
)

// TestClusterLosesNothing kills brokers, and kills and stops hosts, while
// subscribers read. Each of them must get every block that the producer appended
// from its cursor on, once and in order.
func TestClusterLosesNothing(t *testing.T) {
	lost, twice := live(t, *subscribers, *rounds, *forget)
	if lost+twice > 0 {
		t.Errorf("%d lost, %d twice or out of order", lost, twice)
	}
}

// TestClusterCheckCanFail has subscribers come back as clients do that know of no
// cursors.
func TestClusterCheckCanFail(t *testing.T) {
	if testing.Short() {
		t.Skip("a second cluster takes its time")
	}
	if lost, _ := live(t, 12, 0, true); lost == 0 {
		t.Error("subscribers that come back without a cursor lost nothing")
	}
}

// live returns how many blocks, over all subscribers, were lost, and how many
// came twice or out of order.
func live(t *testing.T, n, rounds int, forget bool) (lost, twice int) {
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	out := slog.DiscardHandler
	if *logs {
		out = slog.NewTextHandler(os.Stderr, nil)
	}
	start := time.Now()
	c, err := newCluster(ctx, t.TempDir(), "127.0.0.1:0", mortal, slog.New(out))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the cluster serves after %v", time.Since(start).Round(time.Millisecond))

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
	defer func() { // where a disaster was the end of it
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
		t.Errorf("closing: %v", err)
	}
	connections, delivered := 0, 0
	for i, s := range people {
		l, w := p.judge(s)
		if (l > 0 || w > 0) && lost+twice == 0 && !forget {
			t.Errorf("subscriber %d, from %q: %d lost, %d twice, last %q of %q", i, s.begin, l, w,
				s.got[max(0, len(s.got)-1):], last)
		}
		lost, twice, connections, delivered = lost+l, twice+w, connections+s.connections, delivered+len(s.got)
		if s.wrong != "" {
			t.Errorf("subscriber %d was told %s", i, s.wrong)
		}
	}
	t.Logf("%d blocks to %d subscribers in %v: %d delivered over %d connections, "+
		"%d lost, %d twice or out of order; longest wait of the producer %v",
		p.n.Load(), n, time.Since(start).Round(time.Second), delivered, connections, lost, twice,
		p.longest.Round(time.Millisecond))
	if connections < 2*n {
		t.Errorf("%d connections of %d subscribers: hardly any was cut off", connections, n)
	}
	return lost, twice
}

// patience is for what must come.
const patience = time.Minute

// early is how many blocks there are before anybody subscribes.
const early = 200

// disasters takes down each host, killed and stopped in turn, and kills each
// broker, one at a time, and once all of them together.
func disasters(t *testing.T, c *cluster, rounds int) {
	t.Helper()
	calm := func() { time.Sleep(time.Second) } // blocks flow, and servers find each other, before the next
	calm()
	turn := 0
	host := func(h *host) {
		end := h.kill
		if turn++; turn%2 == 0 {
			end = func() error { return h.stop(drain) }
		}
		if err := end(); err != nil {
			t.Errorf("the end of a host: %v", err)
		}
		calm()
		start := time.Now()
		for err := h.start(context.Background()); err != nil; err = h.start(context.Background()) {
			if time.Since(start) > patience { // it is started again, as by its supervisor, until the brokers have a leader
				t.Fatalf("a host does not come up: %v", err)
			}
			t.Logf("a host does not come up at once: %v", err)
		}
		calm()
	}
	for range rounds {
		for i := range machines {
			c.brokers.stop(i)
			host(c.hosts[i]) // comes up while a broker is away
			if err := c.brokers.start(i); err != nil {
				t.Error(err)
			}
			if !c.brokers.current(i, patience) {
				t.Errorf("broker %d has not caught up within %v", i, patience)
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
			t.Errorf("broker %d has not come back within %v", i, patience)
		}
	}
	calm()
}

// A producer appends a chain that is known beforehand.
type producer struct {
	t       *testing.T
	w       *natschain.Writer
	chain   []chaingql.Block
	n       atomic.Int64 // blocks that were appended
	over    atomic.Bool
	longest time.Duration
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
		p.t.Errorf("Append: %v", err)
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

// judge compares what a subscriber got with what was appended.
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
	leak.Main(m, 10*time.Second, "chaingql", "nats-io/nats.go")
}

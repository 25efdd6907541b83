package natschain_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

// A randomChain applies random events to a stored chain and records which blocks the chain must then
// contain.
type randomChain struct {
	t      *testing.T
	s      *broker
	rng    *rand.Rand
	opts   *natschain.Options
	all    []chaingql.Block
	events []string
	floor  int // the chain consists of all[floor:stored]
	stored int
	saved  [2]int       // floor and stored at the time of the backup
	seqs   [3000]uint64 // sequence numbers of the blocks' messages
}

// with opens another Backend and calls do with a Writer of it.
func (l *randomChain) with(do func(ctx context.Context, w *natschain.Writer) error) {
	l.t.Helper()
	b := open(l.t, l.s.ClientURL(), l.opts)
	defer b.Close()
	if err := do(context.Background(), writer(l.t, b)); err != nil {
		l.t.Fatalf("after the events %v: got error %v", l.events, err)
	}
}

func (l *randomChain) append(n int) {
	l.t.Helper()
	l.events = append(l.events, fmt.Sprintf("append %d blocks", n))
	l.with(func(ctx context.Context, w *natschain.Writer) error {
		return w.Append(ctx, l.all[l.stored:l.stored+n]...)
	})
	last := l.stream().CachedInfo().State.LastSeq
	for i := range n {
		l.seqs[l.stored+i] = last - uint64(n-1-i)
	}
	l.stored += n
}

func (l *randomChain) stream() jetstream.Stream {
	l.t.Helper()
	s, err := raw(l.t, l.s.ClientURL()).Stream(context.Background(), "chain_blocks")
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *randomChain) step(backUp, restore func()) {
	l.t.Helper()
	switch k := l.rng.IntN(14); {
	case k >= 12 && l.stored-l.floor > 60: // messages expire
		s := l.stream()
		first := s.CachedInfo().State.FirstSeq
		seq := first + l.rng.Uint64N(l.seqs[l.stored-40]-first)
		l.events = append(l.events, fmt.Sprintf("expire messages below %d", seq))
		if err := s.Purge(context.Background(), jetstream.WithPurgeSequence(seq)); err != nil {
			l.t.Fatal(err)
		}
		for l.seqs[l.floor] < seq {
			l.floor++
		}
	case k < 5:
		l.append(1 + l.rng.IntN(40))
	case k < 7:
		l.events = append(l.events, "publish undecodable messages")
		js := raw(l.t, l.s.ClientURL())
		for range 1 + l.rng.IntN(5) {
			if _, err := js.Publish(context.Background(), subjectOf(&l.all[0]), []byte("junk")); err != nil {
				l.t.Fatal(err)
			}
		}
	case k < 8:
		from, n := 1+l.rng.Uint64N(2900), l.rng.Uint64N(4)
		l.events = append(l.events, fmt.Sprintf("publish stray blocks %d to %d", from, from+n))
		publishRun(l.t, l.s.ClientURL(), "0999", numbered(from, from+n))
	case k < 10 && l.stored-l.floor > 60:
		n := 1 + l.rng.IntN(30)
		l.events = append(l.events, fmt.Sprintf("prune %d blocks", n))
		l.with(func(ctx context.Context, w *natschain.Writer) error { return w.Prune(ctx, l.all[l.floor+n].Cursor) })
		l.floor += n
	case k < 11:
		l.events = append(l.events, "back up")
		backUp()
		l.saved = [2]int{l.floor, l.stored}
	case l.saved[1] > 0:
		l.events = append(l.events, "restore")
		restore()
		for i := l.saved[1]; i < l.stored; i++ { // the chain continues with different blocks
			l.all[i].Hash[3]++
		}
		l.floor, l.stored = l.saved[0], l.saved[1]
	}
}

// TestPagesAreCorrectAfterRandomEvents appends blocks, publishes strays, prunes, and restores backups in
// random order. After each event, a Backend that was open during all events and a newly opened Backend
// must return the remaining blocks.
func TestPagesAreCorrectAfterRandomEvents(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			l := &randomChain{
				t: t, s: newBroker(t), rng: rand.New(rand.NewPCG(seed, 7)), opts: (&logbook{}).options(),
				all: numbered(1, 3000),
			}
			host := open(t, l.s.ClientURL(), l.opts)
			backUp, restore := l.s.backups()
			l.append(20)
			for range 25 {
				l.step(backUp, restore)
				fresh := open(t, l.s.ClientURL(), l.opts)
				l.expect("the Backend that was open during all events", host)
				l.expect("a newly opened Backend", fresh)
				fresh.Close()
			}
		})
	}
}

func (l *randomChain) expect(name string, b *natschain.Backend) {
	l.t.Helper()
	blocks, master := l.all[l.floor:l.stored], int32(-1)
	at := blocks[l.rng.IntN(len(blocks))].Cursor
	for _, q := range []chaingql.BlocksQuery{
		{Last: 3}, {First: 1000}, {First: 20, After: at}, {Last: 20, Before: at},
		{First: 20, After: blocks[len(blocks)-1].Cursor},
		{Last: 20, Before: at, Workchain: &master}, {First: 20, After: at, Workchain: &master},
	} {
		page, err := b.Blocks(context.Background(), q)
		if want := chaingql.PageOf(blocks, q); err != nil || !slices.Equal(page, want) {
			l.t.Fatalf("after the events %v, page %s of %s: error %v: %s", l.events, named(q), name, err,
				difference(cursorsOf(page), cursorsOf(want)))
		}
	}
}

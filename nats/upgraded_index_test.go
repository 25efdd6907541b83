package natschain_test

import (
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestWriterReplacesIndexOfEarlierVersion removes End from all nodes of an index, as earlier versions stored them. Such
// nodes are not used. The next Writer must replace them. It must not look for a usable node one by one: a million
// blocks have 4,000 leaves, and Append would exceed the time that it has for the index each time.
func TestWriterReplacesIndexOfEarlierVersion(t *testing.T) {
	all := hashed(10_000, "chain")
	s, b, _ := indexedChain(t, all[:9_000])
	storeIndexWithoutEnds(t, s.ClientURL())
	unknown := hashed(180, "other")[:3]
	expectUnknown(t, b, unknown, chaingql.ErrLookupNotSupported)
	expectByHash(t, b, every(500, all[:9_000]), false)
	w := writer(t, open(t, s.ClientURL(), &natschain.Options{}))
	x := newSpy(t, s.ClientURL())
	if err := w.Append(t.Context(), all[9_000]); err != nil {
		t.Fatal(err)
	}
	if requests, _, _ := x.saw(); requests > 80 {
		t.Errorf("Append sent %d requests, want at most 80", requests)
	}
	for n := 9_001; n < 9_010; n++ {
		expectByHash(t, b, every(3000, all[:n]), false)
		if err := w.Append(t.Context(), all[n]); err != nil {
			t.Fatal(err)
		}
	}
	expectByHash(t, b, every(500, all[:9_010]), true)
	expectUnknown(t, b, unknown, chaingql.ErrBlockNotFound)
}

// storeIndexWithoutEnds replaces all nodes of the index.
func storeIndexWithoutEnds(t *testing.T, url string) {
	t.Helper()
	js := raw(t, url)
	index, err := js.Stream(t.Context(), "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	last := index.CachedInfo().State.LastSeq
	for seq := index.CachedInfo().State.FirstSeq; seq <= last; seq++ {
		m, err := index.GetMsg(t.Context(), seq)
		if err != nil {
			continue // replaced by a later message
		}
		node := map[string]json.RawMessage{}
		if err := json.Unmarshal(m.Data, &node); err != nil {
			t.Fatal(err)
		}
		delete(node, "after")
		payload, err := json.Marshal(node)
		if err == nil {
			_, err = js.PublishAsync(m.Subject, payload)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-t.Context().Done():
	}
}

// A distantDialer dials connections to a server that is far away: data arrives later by the delay.
type distantDialer struct{ delay time.Duration }

type distantConn struct {
	net.Conn
	delay time.Duration
}

func (d distantDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return distantConn{conn, d.delay}, err
}

func (c distantConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(c.delay)
	return n, err
}

// TestIndexIsBuiltOverSlowConnection lets a Writer build a missing index although one Append does not have enough time
// for the 8 leaves by which it may extend each index. The test does not run beside others, which would slow it down.
func TestIndexIsBuiltOverSlowConnection(t *testing.T) {
	s, all := newBroker(t), blocks(2_100)
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(t.Context(), all[:2_080]...); err != nil {
		t.Fatal(err)
	}
	js := raw(t, s.ClientURL())
	index, err := js.Stream(t.Context(), "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	if err := index.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := &logbook{}
	opts := log.options()
	opts.Connect = []nats.Option{nats.SetCustomDialer(distantDialer{10 * time.Millisecond})}
	w := writer(t, open(t, s.ClientURL(), opts))
	for n := 2_080; n < 2_096; n++ {
		if err := w.Append(t.Context(), all[n]); err != nil {
			t.Fatal(err)
		}
		info, err := index.Info(t.Context(), jetstream.WithSubjectFilter("chain.index.>"))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.State.Subjects) == 17 { // 8 leaves of each index, and the node above those of the block index
			return
		}
	}
	t.Errorf("the index is not complete after 16 blocks: %s", log.String())
}

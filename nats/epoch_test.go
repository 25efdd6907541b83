package natschain_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

const epochKey = "chaingql_epoch"

func (b *broker) blockStream() *jetstream.StreamInfo {
	b.t.Helper()
	stream, err := raw(b.t, b.ClientURL()).Stream(b.t.Context(), "chain_blocks")
	if err != nil {
		b.t.Fatal(err)
	}
	return stream.CachedInfo()
}

// expectContinues checks that b and a Backend that is opened now have the epoch, that w appends the blocks of all from
// stored on, and that blocks are found by hash.
func expectContinues(
	t *testing.T, s *broker, b *natschain.Backend, w *natschain.Writer, epoch string, all []chaingql.Block, stored int,
) {
	t.Helper()
	if err := w.Append(t.Context(), all[stored:]...); err != nil {
		t.Errorf("Append by the running Writer: got error %v, want none", err)
	}
	for _, b := range []*natschain.Backend{b, open(t, s.ClientURL(), nil)} {
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err != nil || b.Epoch() != epoch {
			t.Errorf("got epoch %s and error %v, want %s", b.Epoch(), err, epoch)
		}
		expectByHash(t, b, every(97, all), true)
	}
}

// TestEpochSurvivesEncryption lets an operator turn on encryption. A single server changes the creation time of the
// stream when it is restarted for the second time.
func TestEpochSurvivesEncryption(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t), hashed(3000, "a")
	b := open(t, s.ClientURL(), nil)
	w, epoch, created := writer(t, b), b.Epoch(), s.blockStream().Created
	if err := w.Append(t.Context(), all[:2900]...); err != nil {
		t.Fatal(err)
	}
	s.opts.JetStreamKey = "a key"
	for range 2 {
		s.stop()
		s.start()
	}
	if s.blockStream().Created.Equal(created) {
		t.Log("this server does not change the creation time")
	}
	expectContinues(t, s, b, w, epoch, all, 2900)
}

// TestEpochSurvivesRestore restores the streams from snapshots while a host and a Writer run. Clusters and some single
// servers give them other creation times.
func TestEpochSurvivesRestore(t *testing.T) {
	t.Parallel()
	s, all := newBroker(t), hashed(3000, "a")
	b := open(t, s.ClientURL(), nil)
	w, epoch := writer(t, b), b.Epoch()
	if err := w.Append(t.Context(), all[:2900]...); err != nil {
		t.Fatal(err)
	}
	for _, restore := range []func(){s.snapshot("chain_blocks"), s.snapshot("chain_index")} {
		restore()
	}
	expectContinues(t, s, b, w, epoch, all, 2900)
}

// snapshot makes a snapshot of a stream, as `nats stream backup` does. It returns a function that deletes the stream
// and restores it from the snapshot.
func (b *broker) snapshot(stream string) (restore func()) {
	b.t.Helper()
	js := raw(b.t, b.ClientURL())
	nc := js.Conn()
	request := func(subject string, ask any, response any) {
		b.t.Helper()
		data, err := json.Marshal(ask)
		if err != nil {
			b.t.Fatal(err)
		}
		m, err := nc.Request(subject, data, patience)
		if err == nil {
			err = json.Unmarshal(m.Data, response)
		}
		if err != nil || strings.Contains(string(m.Data), `"error"`) {
			b.t.Fatalf("%s: got response %v and error %v", subject, m, err)
		}
	}
	arrived, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		b.t.Fatal(err)
	}
	var backup struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	request("$JS.API.STREAM.SNAPSHOT."+stream, map[string]any{"deliver_subject": arrived.Subject}, &backup)
	var chunks [][]byte
	for {
		m, err := arrived.NextMsg(patience)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(m.Data) == 0 {
			break
		}
		chunks = append(chunks, m.Data)
		if m.Reply != "" {
			_ = m.Respond(nil)
		}
	}
	return func() {
		b.t.Helper()
		if err := js.DeleteStream(b.t.Context(), stream); err != nil {
			b.t.Fatal(err)
		}
		var to struct {
			Deliver string `json:"deliver_subject"`
		}
		request("$JS.API.STREAM.RESTORE."+stream, backup, &to)
		for _, chunk := range append(chunks, nil) {
			m, err := nc.Request(to.Deliver, chunk, patience)
			if err != nil || strings.Contains(string(m.Data), `"error"`) {
				b.t.Fatalf("restore: got response %v and error %v", m, err)
			}
		}
	}
}

// TestOpenKeepsEpochOfExistingStream opens a stream whose metadata have no epoch. With Options.Create, Open must add
// the creation time. Before and after that, all Backends must have the same epoch.
func TestOpenKeepsEpochOfExistingStream(t *testing.T) {
	for name, metadata := range map[string]map[string]string{
		"no metadata": nil, "other metadata": {"owner": "me"}, "not a number": {epochKey: "chain.>", "owner": "me"},
	} {
		s, ctx, all, none := guarded(t), t.Context(), blocks(40), &natschain.Options{}
		js := raw(t, s.as("all"))
		stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "chain_blocks",
			Subjects: []string{"chain.blocks.>"}, AllowDirect: true, AllowAtomicPublish: true, Metadata: metadata})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "chain_balances"}); err != nil {
			t.Fatal(err)
		}
		b, want := open(t, s.as("all"), none), fmt.Sprint(stream.CachedInfo().Created.UnixNano())
		w := writer(t, b)
		if err := w.Append(ctx, all[:20]...); err != nil {
			t.Fatal(err)
		}
		if log := (&logbook{}); metadata == nil {
			opts := log.options()
			opts.Timeout = 2 * time.Second
			open(t, s.as("noupdate"), opts)
			if got := log.String(); strings.Count(got, "updating the stream failed") != 1 {
				t.Errorf("Open without permission to update the stream logged %q, want a warning", got)
			}
		}
		open(t, s.as("all"), nil)
		if err := w.Append(ctx, all[20:]...); err != nil {
			t.Errorf("%s: Append after Open added the epoch: got error %v, want none", name, err)
		}
		expectStored(t, b, all)
		if got := open(t, s.as("all"), none).Epoch(); got != want || b.Epoch() != want {
			t.Errorf("%s: got epochs %s and %s, want %s", name, b.Epoch(), got, want)
		}
		info, err := stream.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Config.Metadata; got[epochKey] != want || got["owner"] != metadata["owner"] {
			t.Errorf("%s: got metadata %v, want the epoch %s and the other entries", name, got, want)
		}
	}
}

// TestStreamThatIsCreatedAgainHasHigherEpoch lets an operator replace the stream, with and without Open.
func TestStreamThatIsCreatedAgainHasHigherEpoch(t *testing.T) {
	s, ctx := newBroker(t), t.Context()
	js, epochs := raw(t, s.ClientURL()), []string{}
	b := open(t, s.ClientURL(), nil)
	for _, create := range []func() error{
		func() error { return nil },
		func() error {
			_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "chain_blocks", AllowDirect: true,
				Subjects: []string{"chain.blocks.>"}, Metadata: map[string]string{"owner": "me"}})
			return err
		},
		func() error { return nil },
	} {
		w := writer(t, b)
		epochs = append(epochs, b.Epoch())
		if err := js.DeleteStream(ctx, "chain_blocks"); err != nil {
			t.Fatal(err)
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		b = open(t, s.ClientURL(), nil)
		if err := w.Append(ctx, blocks(1)...); !errors.Is(err, chaingql.ErrChainReplaced) {
			t.Errorf("Append after the stream was replaced: got error %v, want ErrChainReplaced", err)
		}
	}
	if epochs = append(epochs, b.Epoch()); !slices.IsSorted(epochs) || len(slices.Compact(epochs)) != 4 {
		t.Errorf("got epochs %v, want four ascending ones", epochs)
	}
}

// TestBackendsThatCreateStreamAtOnceHaveSameEpoch opens many Backends before the stream exists.
func TestBackendsThatCreateStreamAtOnceHaveSameEpoch(t *testing.T) {
	s := newBroker(t)
	epochs := make([]string, 8)
	var opening sync.WaitGroup
	for i := range epochs {
		opening.Go(func() {
			b, err := natschain.Open(t.Context(), s.ClientURL(), &natschain.Options{Create: &natschain.Storage{}})
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			epochs[i] = b.Epoch()
		})
	}
	opening.Wait()
	if got := slices.Compact(epochs); len(got) != 1 {
		t.Errorf("got epochs %v, want only one", got)
	}
}

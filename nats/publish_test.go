package natschain_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAppendIgnoresForgottenMessageIDs appends blocks whose message IDs the server remembers, although the
// stream does not contain these blocks. The Writer must not wait until the server forgets the IDs.
func TestAppendIgnoresForgottenMessageIDs(t *testing.T) {
	for name, n := range map[string]int{"single block": 1, "batch": 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, all, ctx := newBroker(t), blocks(40), t.Context()
			b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
			defer b.WriteWithin(5 * time.Second)()
			if err := writer(t, b).Append(ctx, all[:n]...); err != nil {
				t.Fatal(err)
			}
			stream, err := js.Stream(ctx, "chain_blocks")
			if err == nil {
				err = stream.Purge(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
			w := writer(t, b)
			if err := w.Append(ctx, all[:n]...); err != nil {
				t.Fatalf("Append of purged blocks: %v", err)
			}
			next := &all[n] // has its ID in common with a message that is not a block
			id := fmt.Sprintf("%s.%x.%s", next.Cursor, next.Hash[:8], b.Epoch())
			_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subjectOf(next), Data: []byte("{}"),
				Header: nats.Header{jetstream.MsgIDHeader: {id}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Append(ctx, all[n:2*n]...); err != nil {
				t.Errorf("Append after a stray message with the same ID: %v", err)
			}
			expectStored(t, b, all[:2*n])
		})
	}
}

// TestWriterReportsStreamThatTakesItsSubjects lets another stream have the subjects of the blocks, before the
// Writer is created and later. Blocks in that stream are not in the chain.
func TestWriterReportsStreamThatTakesItsSubjects(t *testing.T) {
	t.Parallel()
	s, all, ctx := newBroker(t), blocks(2), t.Context()
	b, js := open(t, s.ClientURL(), nil), raw(t, s.ClientURL())
	w := writer(t, b)
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.Subjects = []string{"moved.>"}
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	c = jetstream.StreamConfig{Name: "other", Subjects: []string{"chain.blocks.>"}, AllowAtomicPublish: true}
	if _, err := js.CreateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2} {
		if err := w.Append(ctx, all[:n]...); err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("Append of %d blocks: got error %v, want one with the name of the other stream", n, err)
		}
		if err := js.DeleteStream(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Writer(ctx); err == nil || !strings.Contains(err.Error(), `"other", not in "chain_blocks"`) {
		t.Errorf("Writer: got error %v, want one with the name of the other stream", err)
	}
}

// TestAppendNoticesEqualNumberOfOtherBlocks restores the stream from a backup. Another Writer appends as many
// blocks as were lost, so that the stream ends at the same sequence number as before, but with another block.
func TestAppendNoticesEqualNumberOfOtherBlocks(t *testing.T) {
	t.Parallel()
	s, all, ctx := newBroker(t), blocks(40), t.Context()
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w := writer(t, b)
	restore := s.appendAndBackUp(w, all[:30], 20)
	restore[20]()
	others := make([]chaingql.Block, 10)
	for i := range others {
		others[i] = all[20+i]
		others[i].Hash[1]++
		others[i].Cursor = between(&all[19], i)
	}
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, others...); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	w.CatchUp(0)
	if err := w.Append(ctx, all[30]); !errors.Is(err, natschain.ErrConflict) {
		newest, _ := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
		t.Errorf("Append: got error %v, want ErrConflict; the chain ends with %q", err, cursorsOf(newest))
	}
}

// TestAppendReportsMissingPermissionForShard appends a block of a shard to whose subject the user may not publish.
func TestAppendReportsMissingPermissionForShard(t *testing.T) {
	t.Parallel()
	permissions := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"chain.blocks.7.*"}}}
	s := newBroker(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "some", Password: password, Permissions: permissions}}
	})
	b := open(t, s.as("some"), nil)
	defer b.WriteWithin(3 * time.Second)()
	block := blocks(1)[0]
	block.Workchain = 7
	if err := writer(t, b).Append(t.Context(), block); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("Append: got error %v, want ErrPermissionViolation", err)
	}
}

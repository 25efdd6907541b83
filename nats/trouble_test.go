package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

func TestFollowThatPruningOvertakesIsTold(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(10_000), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	r.expect(all[:5])
	if err := w.Prune(ctx, all[9000].Cursor); err != nil {
		t.Fatal(err)
	}
	for i := 5; ; i++ { // what is on its way still comes
		select {
		case c := <-r.blocks:
			if c != all[i].Cursor {
				t.Fatalf("%q came, where %q was due", c, all[i].Cursor)
			}
			continue
		case err := <-r.end:
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("nothing came")
		}
		break
	}
}

// TestStreamMadeAnewIsNotTakenForTheOld has somebody delete the stream and make
// another, of which the same numbers mean other blocks.
func TestStreamMadeAnewIsNotTakenForTheOld(t *testing.T) {
	for _, size := range []int{50, 300} { // fewer blocks than before, and more
		s := newBroker(t)
		b, ctx := open(t, s.ClientURL(), nil), context.Background()
		old, other := blocks(200), blocks(1000)[200:] // later ones of the same chain
		if err := writer(t, b).Append(ctx, old...); err != nil {
			t.Fatal(err)
		}
		r := follow(t, b, old[9].Cursor)
		r.expect(old[10:])
		if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
			t.Fatal(err)
		}
		again := open(t, s.ClientURL(), nil)
		if err := writer(t, again).Append(ctx, other[:size]...); err != nil {
			t.Fatal(err)
		}
		err := r.ends(patience)
		for err != nil && strings.Contains(err.Error(), "stream not found") { // it was quick, and is started again
			r = follow(t, b, old[199].Cursor)
			err = r.ends(patience)
		}
		if err == nil || !strings.Contains(err.Error(), "was deleted and made anew") {
			t.Errorf("of %d: it ended with %v", size, err)
		}
		follow(t, b, old[199].Cursor).expect(other[:3])
		if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 5, After: other[2].Cursor}); err != nil || len(page) != 5 || page[0] != other[3] {
			t.Errorf("of %d: behind the third block come %v, %v", size, page, err)
		}
	}
}

// TestStreamMadeAnewIsSearchedAnew has no Follow that would notice: what is known
// of the old stream is true of the new one nowhere.
func TestStreamMadeAnewIsSearchedAnew(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(200), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all[:100]...); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	again := writer(t, open(t, s.ClientURL(), nil))
	if err := again.Append(ctx, all[50:150]...); err != nil { // each 50 places lower
		t.Fatal(err)
	}
	if err := w.Prune(ctx, all[55].Cursor); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, all[60:80]...); err != nil {
		t.Errorf("blocks that are stored cannot be appended again: %v", err)
	}
	if err := w.Append(ctx, slices.Concat(all[60:70], all[71:80])...); !errors.Is(err, natschain.ErrConflict) {
		t.Errorf("a chain without a block that is stored is appended: %v", err)
	}
	q := chaingql.BlocksQuery{First: 10, After: all[79].Cursor}
	if page, err := b.Blocks(ctx, q); err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[80:90])) {
		t.Errorf("behind block 79 come %v, %v", cursorsOf(page), err)
	}
	expectStored(t, open(t, s.ClientURL(), nil), all[55:150])
}

func TestBlocksOutOfOrderEndAFollow(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(20), context.Background()
	if err := writer(t, b).Append(ctx, all[10:]...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	r.expect(all[10:])
	payload := fmt.Sprintf(`{"cursor":%q,"seq_no":1,"hash":%q,"time":"2023-11-14T22:13:20Z"}`, all[3].Cursor, strings.Repeat("00", 32))
	if _, err := raw(t, s.ClientURL()).Publish(ctx, "chain.blocks.0.8000000000000000", []byte(payload)); err != nil {
		t.Fatal(err)
	}
	if err := r.ends(patience); !strings.Contains(err.Error(), "blocks must be appended in cursor order") {
		t.Errorf("it ended with %v", err)
	}
}

func TestBlocksThatSomebodyDeletedEndAFollow(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	stream, err := raw(t, s.ClientURL()).CreateStream(ctx, jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"chain.blocks.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	b, all := open(t, s.ClientURL(), nil), blocks(50)
	if err := writer(t, b).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(ctx, 30); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, all[9].Cursor)
	r.expect(all[10:29])
	if err := r.ends(patience); !strings.Contains(err.Error(), "messages 30 to 30 of the stream were deleted") {
		t.Errorf("it ended with %v", err)
	}
}

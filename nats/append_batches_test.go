package natschain_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestAppendWorksWhileOthersKeepBatchesOpen begins as many atomic batches as the server allows for one stream, and does
// not commit them. Append of several blocks must not wait until the server forgets them, which a program can prevent.
func TestAppendWorksWhileOthersKeepBatchesOpen(t *testing.T) {
	t.Parallel()
	s, all, ctx := newBroker(t), numbered(1, 20), t.Context()
	b := open(t, s.ClientURL(), (&logbook{}).options())
	defer b.WriteWithin(3 * time.Second)()
	w, nc := writer(t, b), raw(t, s.ClientURL()).Conn()
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ { // a response with data is an error
		m := &nats.Msg{Subject: subjectOf(&all[0]), Header: nats.Header{
			"Nats-Batch-Id": {fmt.Sprint("other", i)}, "Nats-Batch-Sequence": {"1"},
		}}
		response, err := nc.RequestMsg(m, patience)
		if err != nil {
			t.Fatal(err)
		}
		if len(response.Data) > 0 {
			break
		}
	}
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, all)
}

package natschain_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestStrayMessageMayHaveTheHeadersOfAResponse publishes stray messages with the headers that the server adds to its
// responses. The server adds its own values after them. Reads, Follow, Append and Open must ignore these messages.
func TestStrayMessageMayHaveTheHeadersOfAResponse(t *testing.T) {
	for _, header := range []nats.Header{
		{"Nats-Last-Sequence": {"7"}}, {"Nats-Sequence": {"3"}}, {"Nats-Subject": {"chain.blocks.readme"}},
		{"Nats-Stream": {"other"}}, {"Nats-Time-Stamp": {"now"}}, {"Status": {"404"}},
		{"Status": {"204"}, "Nats-Num-Pending": {"0"}}, {"Status": {"503"}}, {"Status": {"100"}},
		{"Status": {"409"}, "Description": {"Consumer Deleted"}},
	} {
		t.Run(fmt.Sprint(header), func(t *testing.T) {
			t.Parallel()
			s, ctx, all := newBroker(t), context.Background(), blocks(80)
			b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
			w := writer(t, b)
			if err := w.Append(ctx, all[:20]...); err != nil {
				t.Fatal(err)
			}
			live := follow(t, b, "")
			live.expect(all[:20])
			publish := func(data string) {
				stray := nats.Msg{Subject: subjectOf(&all[0]), Header: header, Data: []byte(data)}
				if _, err := js.PublishMsg(ctx, &stray); err != nil {
					t.Fatal(err)
				}
			}
			publish("")
			publish("{}")
			if err := w.Append(ctx, all[20:40]...); err != nil {
				t.Fatal(err)
			}
			live.expect(all[20:40])
			fresh := open(t, s.ClientURL(), (&logbook{}).options())
			expectReads(t, b, all[:40])
			expectReads(t, fresh, all[:40])
			follow(t, fresh, all[10].Cursor).expect(all[11:40])
			publish("") // also the newest message when a Follow begins
			late := follow(t, fresh, all[39].Cursor)
			if err := writer(t, fresh).Append(ctx, all[40:]...); err != nil {
				t.Fatal(err)
			}
			late.expect(all[40:])
			live.expect(all[40:])
		})
	}
}

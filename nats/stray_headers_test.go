package natschain_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestStrayMessageMayHaveTheHeadersOfAResponse publishes stray messages with the headers that the server adds to its
// responses. The server adds its own values after them. Reads, Follow, Append and Open must ignore these messages.
func TestStrayMessageMayHaveTheHeadersOfAResponse(t *testing.T) {
	for _, header := range []nats.Header{
		{"Nats-Last-Sequence": {"7"}}, {"Nats-Sequence": {"3"}}, {"Nats-Subject": {"chain.blocks.readme"}},
		{"Nats-Stream": {"other"}}, {"Nats-Time-Stamp": {"now"}}, {"Status": {"404"}},
		{"Status": {"204"}, "Nats-Num-Pending": {"0"}}, {"Status": {"503"}}, {"Status": {"100"}},
		{"Status": {"409"}, "Description": {"Consumer Deleted"}}, {"Status": {"400"}}, {"Status": {"423"}},
		{"Status": {"408"}, "Nats-Pending-Messages": {"x"}}, {"Status": {"408"}, "Nats-Pending-Bytes": {"x"}},
		{"Status": {"408"}, "Nats-Pending-Messages": {"-2000000000"}},
		{"Status": {"409"}, "Description": {"Message Size Exceeds MaxBytes"}, "Nats-Pending-Messages": {"x"}},
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

// TestStrayMessagesWithAStatusDoNotEndFollow publishes stray messages that look like responses of the server, alone and
// between well-formed ones. While no block follows them, a well-formed message may still become a block, so Follow
// cannot skip it.
func TestStrayMessagesWithAStatusDoNotEndFollow(t *testing.T) {
	headers := map[rune]nats.Header{
		'd': {"Status": {"409"}, "Description": {"Consumer Deleted"}}, 'h': {"Status": {"100"}},
		'b': {"Status": {"400"}}, 't': {"Status": {"408"}, "Nats-Pending-Messages": {"-2000000000"}},
	}
	for _, run := range []string{"dddddddddd", "wd", "dwd", "hwd", "wbwbwbwbwbwbwbwb", "wtwtwtwtwtwt", "wtwdwhwb"} {
		t.Run(run, func(t *testing.T) {
			t.Parallel()
			s, ctx, all := newBroker(t), context.Background(), blocks(100)
			b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
			w := writer(t, b)
			if err := w.Append(ctx, all[:20]...); err != nil {
				t.Fatal(err)
			}
			live := follow(t, b, all[9].Cursor)
			live.expect(all[10:20])
			for i, c := range run {
				m := &nats.Msg{Subject: subjectOf(&all[0]), Header: headers[c]}
				if c == 'w' {
					stray := numbered(5000+2*uint64(i), 5000+2*uint64(i))[0]
					m.Data = []byte(payloadOf(&stray))
				}
				if _, err := js.PublishMsg(ctx, m); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-live.end:
				t.Fatalf("Follow ended with error %v", err)
			case <-time.After(time.Second):
			}
			if err := w.Append(ctx, all[20:]...); err != nil {
				t.Fatal(err)
			}
			live.expect(all[20:])
			expectReads(t, b, all)
		})
	}
}

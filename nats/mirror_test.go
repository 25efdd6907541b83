package natschain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// TestMirrorsDoNotChangePages creates a mirror of the block stream, which NATS lets respond to direct gets
// of the stream. Pages must be right even if the mirror has other messages, and if it receives all requests.
func TestMirrorsDoNotChangePages(t *testing.T) {
	const direct = "$JS.API.DIRECT.GET."
	for name, c := range map[string]struct {
		kept     int64 // maximum number of messages in the mirror
		replaced bool  // whether the mirror has the messages of a stream that was replaced
		to       string
	}{
		"newest blocks":                     {kept: 100},
		"newest blocks, for all requests":   {kept: 100, to: "backup"},
		"replaced stream":                   {kept: -1, replaced: true},
		"replaced stream, for all requests": {kept: -1, replaced: true, to: "backup"},
		"nothing, for all requests":         {kept: -1, to: "empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, all, ctx := newBroker(t), uneven(700), t.Context()
			b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
			if err := writer(t, b).Append(ctx, all...); err != nil {
				t.Fatal(err)
			}
			origin := &jetstream.StreamSource{Name: "chain_blocks"}
			mirror, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "backup", Mirror: origin, MaxMsgs: c.kept,
				AllowDirect: true})
			if err != nil {
				t.Fatal(err)
			}
			empty := jetstream.StreamConfig{Name: "empty", Subjects: []string{"empty"}, AllowDirect: true}
			_, err = js.CreateStream(ctx, empty)
			if err != nil {
				t.Fatal(err)
			}
			for until := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
				info, err := mirror.Info(ctx)
				if err != nil || time.Now().After(until) {
					t.Fatalf("the mirror does not have all messages, error %v", err)
				}
				if info.State.LastSeq == uint64(len(all)) {
					break
				}
			}
			if c.replaced {
				all = forked(all)
				replaceStream(t, s.ClientURL(), all)
			}
			if c.to != "" {
				if err := s.GlobalAccount().AddMapping(direct+"chain_blocks", direct+c.to); err != nil {
					t.Fatal(err)
				}
			}
			log := &logbook{}
			host := open(t, s.ClientURL(), log.options())
			rounds := 10 // each response may be the mirror's
			if c.to != "" {
				rounds = 2
			}
			for range rounds {
				host.Forget()
				expectPages(t, host, all, []chaingql.BlocksQuery{
					{First: 10}, {First: 10, After: all[50].Cursor}, {Last: 20}, {Last: 10, Before: all[300].Cursor},
				})
			}
			if logged := log.String(); c.to != "empty" && strings.Count(logged, "mirror=backup") != 1 {
				t.Errorf("got log %q, want one warning with the name of the mirror", logged)
			}
		})
	}
}

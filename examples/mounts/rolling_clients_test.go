package mounts_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"
)

const (
	everyBlock = `subscription($after:String){blocks(after:$after){seq_no shard chain_order}}`
	newest     = `{blockchain{blocks(workchain:-1,last:1){edges{node{seq_no}}}}}`
)

// shards contains the position of each shard's block in a round of the example's chain.
var shards = map[string]int{"4000000000000000": 0, "c000000000000000": 1, "8000000000000000": 2}

// A subscriber must receive each block once and in order. When its connection ends, it resumes after its last block.
type subscriber struct {
	*bed
	to       string // URL
	protocol string // "" means an event stream

	// Guarded by bed.mu.
	last   int       // number of the last received block; 0 if there is none
	cursor string    // chain_order of that block
	seen   time.Time // when it arrived
}

func (s *subscriber) String() string {
	if s.protocol == "" {
		return "event stream"
	}
	return s.protocol
}

// run subscribes again and again until ctx is done. After a failed attempt, it waits longer.
func (s *subscriber) run(ctx context.Context) {
	for attempt, failures := 0, 0; ctx.Err() == nil; attempt++ {
		s.connecting(attempt > 0)
		accepted, err := s.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		if failures++; accepted {
			failures = 0
		}
		s.disconnected(s, accepted, err)
		wait := 100 * time.Millisecond << min(failures, 4)
		pause(ctx, wait/2+rand.N(wait))
	}
}

// follow subscribes on a new connection until it ends. It reports whether the service has accepted the subscription.
func (s *subscriber) follow(ctx context.Context) (accepted bool, err error) {
	variables := map[string]string{}
	if after := s.resumeAfter(); after != "" {
		variables["after"] = after
	}
	if s.protocol == "" {
		return s.overEvents(ctx, variables)
	}
	return s.overSocket(ctx, variables)
}

func (s *subscriber) overSocket(ctx context.Context, variables map[string]string) (accepted bool, err error) {
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, _, err := websocket.Dial(dialing, s.to, &websocket.DialOptions{Subprotocols: []string{s.protocol}})
	if err != nil {
		return false, fmt.Errorf("handshake: %w", err)
	}
	defer func() { _ = conn.CloseNow() }()
	start, err := json.Marshal(map[string]any{
		"id": "1", "type": map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[s.protocol],
		"payload": map[string]any{"query": everyBlock, "variables": variables},
	})
	if err != nil {
		return false, err
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		return false, err
	}
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return accepted, err
		}
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			return accepted, fmt.Errorf("%w: %.200q", err, frame)
		}
		switch m.Type {
		case "connection_ack":
			accepted = true
			err = conn.Write(ctx, websocket.MessageText, start)
		case "ping":
			err = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`))
		case "ka":
		case "data", "next":
			err = s.received(s, m.Payload)
		default: // error, connection_error
			err = fmt.Errorf("received %.200s", frame)
		}
		if err != nil {
			return accepted, err
		}
	}
}

func (s *subscriber) overEvents(ctx context.Context, variables map[string]string) (accepted bool, err error) {
	values, err := json.Marshal(variables)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	query := url.Values{"query": {everyBlock}, "variables": {string(values)}}
	r, err := http.NewRequestWithContext(ctx, "GET", s.to+"?"+query.Encode(), nil)
	if err != nil {
		return false, err
	}
	r.Header.Set("Accept", "text/event-stream")
	late := time.AfterFunc(patience, cancel)
	res, err := s.streams.Do(r)
	late.Stop()
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return false, fmt.Errorf("status %d", res.StatusCode)
	}
	for lines := bufio.NewReader(res.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return true, fmt.Errorf("event stream ended: %w", err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok && data != "\n" {
			if err := s.received(s, []byte(data)); err != nil {
				return true, err
			}
		}
	}
}

// sendQueries sends perSecond queries in each second, half of them by POST and half by GET, until ctx is done.
func (b *bed) sendQueries(ctx context.Context, perSecond int) {
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		// The methods do not alternate, because the proxy sends requests to the instances in turn.
		method := []string{"POST", "POST", "GET", "GET"}[n%4]
		b.clients.Go(func() {
			began := time.Now()
			err := b.query(method)
			b.answered(method, time.Since(began), err)
		})
	}
}

func (b *bed) query(method string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	to, body := b.to+"?query="+url.QueryEscape(newest), ""
	if method == "POST" {
		to, body = b.to, `{"query":"`+newest+`"}`
	}
	r, err := http.NewRequestWithContext(ctx, method, to, strings.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := b.queries.Do(r)
	if err != nil {
		return errors.Unwrap(err) // without the URL
	}
	answer, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && (res.StatusCode != http.StatusOK || !strings.HasPrefix(string(answer), `{"data":{"blockchain":`)) {
		err = fmt.Errorf("status %d", res.StatusCode)
	}
	return err
}

// pause waits for d and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

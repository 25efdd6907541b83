package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const subscription = `subscription($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) { id seq_no workchain_id shard chain_order }
}`

// A subscriber must receive each block of its interest once and in order, even if it disconnects or
// the service restarts.
type subscriber struct {
	*world
	name     string
	protocol string // "" means an event stream
	interest interest
	project  string
	client   *http.Client
	next     atomic.Int64 // number of the next expected block
	joined   time.Time    // start of the subscription; earlier blocks are caught up
}

func newSubscriber(w *world, i, newest int) *subscriber {
	protocols := []string{"graphql-ws", "graphql-transport-ws", ""}
	s := &subscriber{
		world: w, protocol: protocols[i%3], interest: interests[i/3%3], project: []string{"open", "locked"}[i%2],
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	s.name = fmt.Sprintf("subscriber %d (%q, %s)", i, s.protocol, s.interest.name)
	s.next.Store(int64(s.interest.after(newest)))
	return s
}

// run subscribes until ctx is done. It disconnects now and then and resumes with its cursor.
func (s *subscriber) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for ctx.Err() == nil {
		visit, leave := context.WithCancel(ctx)
		timer := time.AfterFunc(s.stay/10+jitter(s.stay), func() {
			if !s.over.Load() {
				leave()
			}
		})
		connected := time.Now()
		err := s.connectOnce(visit)
		left := visit.Err() != nil
		timer.Stop()
		leave()
		if !left {
			s.recordResult(s.name, connected, err)
		}
		pause(ctx, retryPause/2+jitter(retryPause))
	}
}

func (s *subscriber) connectOnce(ctx context.Context) error {
	cursor := ""
	if !s.forget || s.joined.IsZero() {
		cursor = cursorAt(s.interest.before(int(s.next.Load())))
	}
	s.joined = time.Now()
	if s.protocol == "" {
		return s.overEvents(ctx, cursor)
	}
	return s.overSocket(ctx, cursor)
}

// receive checks a received block.
func (s *subscriber) receive(payload []byte) error {
	var a struct {
		Data   struct{ Blocks block }
		Errors []graphqlError
	}
	if err := json.Unmarshal(payload, &a); err != nil {
		return fmt.Errorf("%w: %.200q", err, payload)
	}
	if len(a.Errors) > 0 {
		return a.Errors[0].err()
	}
	n, committed, err := a.Data.Blocks.number()
	if err != nil {
		return err
	}
	due := int(s.next.Load())
	s.next.Store(int64(s.interest.after(n)))
	if n != due {
		return fmt.Errorf("lost or duplicate: got block %d, want %d", n, due)
	}
	if committed.After(s.joined) {
		s.delivery.add(time.Since(committed))
	}
	s.delivered.Add(1)
	s.recordSeen(int64(n))
	return nil
}

func (s *subscriber) variables(cursor string) map[string]any {
	v := map[string]any{"filter": json.RawMessage(s.interest.filter)}
	if cursor != "" {
		v["after"] = cursor
	}
	return v
}

func (s *subscriber) overSocket(ctx context.Context, cursor string) error {
	payload := ""
	if s.project == "locked" { // a browser cannot set headers
		payload = fmt.Sprintf(`,"payload":{"Authorization":%q}`, basic)
	}
	conn, resp, err := websocket.Dial(ctx, s.url(s.project), &websocket.DialOptions{HTTPClient: s.client,
		Subprotocols: []string{s.protocol}})
	if err != nil {
		if resp != nil {
			return s.refused(resp)
		}
		return err
	}
	s.codes.add("101")
	defer func() { _ = conn.CloseNow() }()
	start := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[s.protocol]
	text, err := json.Marshal(map[string]any{
		"id": "1", "type": start, "payload": map[string]any{"query": subscription, "variables": s.variables(cursor)},
	})
	if err != nil {
		return err
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"`+payload+`}`)); err != nil {
		return ended(err)
	}
	for {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			return ended(err)
		}
		var m struct {
			Type    string
			Payload json.RawMessage
		}
		if err := json.Unmarshal(frame, &m); err != nil {
			return fmt.Errorf("%w: %.200q", err, frame)
		}
		err = nil
		switch m.Type {
		case "connection_ack":
			err = ended(conn.Write(ctx, websocket.MessageText, text))
		case "ping":
			err = ended(conn.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`)))
		case "ka", "pong":
		case "data", "next":
			err = s.receive(m.Payload)
		case "connection_error":
			if !strings.Contains(string(frame), "shutting down") {
				return fmt.Errorf("unexpected %s", frame)
			}
			return errUnavailable
		case "error":
			var one graphqlError
			var several []graphqlError
			if json.Unmarshal(m.Payload, &several) == nil && len(several) > 0 {
				one = several[0]
			} else if err := json.Unmarshal(m.Payload, &one); err != nil {
				return fmt.Errorf("%w: %s", err, frame)
			}
			err = one.err()
		default:
			err = fmt.Errorf("unexpected %s", frame)
		}
		if err != nil {
			return err
		}
	}
}

// ended converts the error of a socket. A close with 1001 means that the service is unavailable,
// even without a message.
func ended(err error) error {
	if websocket.CloseStatus(err) == websocket.StatusGoingAway {
		return errUnavailable
	}
	return err
}

func (s *subscriber) overEvents(ctx context.Context, cursor string) error {
	variables, err := json.Marshal(s.variables(""))
	if err != nil {
		return err
	}
	target := s.url(s.project) + "?" + url.Values{"query": {subscription}, "variables": {string(variables)}}.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "text/event-stream")
	if s.project == "locked" {
		r.Header.Set("Authorization", basic)
	}
	if cursor != "" {
		r.Header.Set("Last-Event-ID", cursor)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return s.refused(resp)
	}
	s.codes.add("200")
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("event stream ended without an error event: %w", err)
		}
		if data, ok := strings.CutPrefix(line, "data:"); ok && strings.TrimSpace(data) != "" {
			if err := s.receive([]byte(data)); err != nil {
				return err
			}
		}
	}
}

// refused returns the error of a refused request.
func (s *subscriber) refused(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	if err != nil {
		return err
	}
	code := codeOf(resp.StatusCode, text)
	s.codes.add(code)
	if resp.StatusCode == http.StatusServiceUnavailable {
		return errUnavailable
	}
	return fmt.Errorf("refused with %s", code)
}

// A graphqlError is a GraphQL error.
type graphqlError struct {
	Message    string
	Extensions struct{ Code string }
}

var errUnavailable = errors.New("SERVICE_UNAVAILABLE")

func (t graphqlError) err() error {
	if t.Extensions.Code == errUnavailable.Error() {
		return errUnavailable
	}
	return fmt.Errorf("%s: %s", t.Extensions.Code, t.Message)
}

package mounts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// A phase contains what the clients have noticed during a part of a run.
type phase struct {
	name       string
	blocks     int
	wrong      []string       // blocks that were lost, doubled or out of order
	behind     int            // number of subscribers that did not catch up
	dark       time.Duration  // longest time that a subscriber was without a block
	control    time.Duration  // longest time between two blocks of the instance that is never stopped
	drained    int            // number of connections that the service ended with a reason
	cut        int            // number of connections that ended without a reason
	reconnects int            // number of attempts
	refused    map[string]int // number of failed attempts by reason
	queries    int
	failed     map[string]int // number of failed queries by method and reason
	slowest    time.Duration  // longest successful query
}

func newPhase(name string) *phase {
	return &phase{name: name, refused: map[string]int{}, failed: map[string]int{}}
}

// check checks what must hold in each phase.
func (p *phase) check(t *testing.T) {
	t.Helper()
	if len(p.wrong) > 0 {
		t.Errorf("%s: %d blocks were lost, doubled or out of order: %q", p.name, len(p.wrong),
			p.wrong[:min(5, len(p.wrong))])
	}
	if p.behind > 0 {
		t.Errorf("%s: %d subscribers did not catch up within %v", p.name, p.behind, patience)
	}
	if p.dark > darkest+p.control {
		t.Errorf("%s: a subscriber was without blocks for %v, want at most %v more than the %v "+
			"of the instance that is never stopped", p.name, p.dark, darkest, p.control)
	}
	if p.blocks == 0 || p.queries == 0 || p.drained+p.cut == 0 {
		t.Errorf("%s: %d blocks arrived, %d queries were sent, and %d connections ended; want some of each",
			p.name, p.blocks, p.queries, p.drained+p.cut)
	}
}

// row returns a row of the tables in proxies/RESULTS.md.
func (p *phase) row(proxy string) string {
	return fmt.Sprintf("| %s | %s | %d | %d | %d + %d | %d | %s | %.1f s (%.1f s) | %d | %s | %d ms |",
		proxy, p.name, p.blocks, len(p.wrong), p.drained, p.cut, p.reconnects, list(p.refused),
		p.dark.Seconds(), p.control.Seconds(), p.queries, list(p.failed), p.slowest.Milliseconds())
}

const header = `| proxy | part | blocks delivered | lost or doubled | connections drained + cut | reconnects ` +
	`| refused | longest time without a block (control) | queries | failed | slowest query |
|---|---|---|---|---|---|---|---|---|---|---|`

func list(counts map[string]int) string {
	if len(counts) == 0 {
		return "0"
	}
	var all []string
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(all, ", ")
}

// received records a block, or returns the error with which the service ended the subscription.
func (b *bed) received(s *subscriber, payload []byte) error {
	var m struct {
		Data struct {
			Blocks struct {
				SeqNo      int    `json:"seq_no"`
				Shard      string `json:"shard"`
				ChainOrder string `json:"chain_order"`
			}
		}
		Errors json.RawMessage
	}
	if err := json.Unmarshal(payload, &m); err != nil {
		return fmt.Errorf("%w: %.200q", err, payload)
	}
	if m.Errors != nil {
		return fmt.Errorf("received %.200s", m.Errors)
	}
	block, now := m.Data.Blocks, time.Now()
	n := block.SeqNo*len(shards) + shards[block.Shard]
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.last > 0 {
		if gap := now.Sub(s.seen); s == b.control {
			b.phase.control = max(b.phase.control, gap)
		} else {
			b.phase.dark = max(b.phase.dark, gap)
		}
		if n != s.last+1 {
			b.phase.wrong = append(b.phase.wrong, fmt.Sprintf("%s received block %d after %d", s, n, s.last))
		}
	}
	s.last, s.cursor, s.seen = n, block.ChainOrder, now
	b.phase.blocks++
	return nil
}

// resumeAfter returns the cursor of the last block that s has received.
func (s *subscriber) resumeAfter() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cursor
}

// connecting records an attempt to subscribe.
func (b *bed) connecting(again bool) {
	if again {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.phase.reconnects++
	}
}

// disconnected records why a subscription has ended, or was not accepted.
func (b *bed) disconnected(s *subscriber, accepted bool, reason error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch text := reason.Error(); {
	case !accepted:
		b.phase.refused[fmt.Sprintf("%s: %s", s, text)]++
	case strings.Contains(text, "SERVICE_UNAVAILABLE") || strings.Contains(text, "shutting down"):
		b.phase.drained++
	default:
		b.phase.cut++
	}
}

// answered records the outcome of a query.
func (b *bed) answered(method string, took time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.phase.queries++
	if err != nil {
		b.phase.failed[method+": "+err.Error()]++
		return
	}
	b.phase.slowest = max(b.phase.slowest, took)
}

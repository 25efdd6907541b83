package chaingql_test

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// A breakingBackend fails while down is set.
type breakingBackend struct {
	*noticingBackend
	down *atomic.Bool
}

func (b breakingBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if b.down.Load() {
		return nil, chaingql.ErrUnavailable
	}
	return b.noticingBackend.Blocks(ctx, q)
}

func (b breakingBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		for block, err := range b.noticingBackend.Follow(ctx, after) {
			if b.down.Load() {
				err = chaingql.ErrUnavailable
			}
			if !yield(block, err) || err != nil {
				return
			}
		}
	}
}

// A traveler is a client that reads a chain over many short connections, each to a random instance, and resumes as
// docs/protocol.md requires.
type traveler struct {
	t         *testing.T
	rnd       *rand.Rand
	transport string
	onlyMain  bool // subscribes to the masterchain only
	all       []chaingql.Block
	places    map[string]int // of the blocks by their chain_order

	after   *string // the cursor to resume from; nil for the newest block
	epoch   string  // of the blocks received; "" before the first one
	at      int     // place up to which the client has received all blocks; -1 before the first one
	blocks  int     // number of blocks received
	codes   map[string]int
	history []string
}

func (c *traveler) matches(i int) bool { return !c.onlyMain || c.all[i].Workchain == -1 }

// whole reports whether the client has all blocks of an epoch.
func (c *traveler) whole(epoch string) bool {
	if c.epoch != epoch {
		return false
	}
	return !slices.ContainsFunc(c.all[c.at+1:], func(b chaingql.Block) bool { return !c.onlyMain || b.Workchain == -1 })
}

// advance moves the client to a cursor. It reports an error if the cursor is before the position of the client, or
// skips blocks.
func (c *traveler) advance(cursor string, isBlock bool) {
	order, epoch, _ := strings.Cut(cursor, "~")
	to, known := c.places[order]
	if c.epoch == "" { // the first block, or the position of a client that has received none
		c.epoch, c.at = epoch, to
		if isBlock && c.after != nil {
			c.at = -1 // the client began at the oldest block
		}
	}
	least := c.at
	if isBlock {
		least++
	}
	ok := known && epoch == c.epoch && (to >= least || c.at == to)
	for i := c.at + 1; i < to; i++ {
		ok = ok && !c.matches(i)
	}
	if !ok || c.matches(to) != isBlock && to != c.at {
		c.t.Errorf("%s: %q after block %d of epoch %s: %q", c.transport, cursor, c.at, c.epoch, c.history)
	}
	c.at, c.after = to, &cursor
}

// take handles one response and reports whether the stream continues.
func (c *traveler) take(response []byte) bool {
	var r struct {
		Data   struct{ Blocks struct{ ID, Cursor string } }
		Errors []struct{ Extensions struct{ Code, Cursor string } }
	}
	if json.Unmarshal(response, &r) != nil {
		return false // the client has left in the middle of the response
	}
	if len(r.Errors) == 0 {
		epochOf(c.t, c.transport, r.Data.Blocks.ID, r.Data.Blocks.Cursor)
		c.advance(r.Data.Blocks.Cursor, true)
		c.blocks++
		return true
	}
	x := r.Errors[0].Extensions
	c.codes[x.Code]++
	c.history = append(c.history, x.Code+" "+x.Cursor)
	switch {
	case x.Code == "EPOCH_CHANGED" && x.Cursor == "":
		c.epoch, c.at, c.after = "", -1, nil
		if c.rnd.IntN(2) == 0 {
			c.after = new(string)
		}
	case x.Code == "SERVICE_UNAVAILABLE" && x.Cursor != "":
		c.advance(x.Cursor, false)
	case x.Code != "SERVICE_UNAVAILABLE":
		c.t.Errorf("%s: received %s with the cursor %q", c.transport, x.Code, x.Cursor)
	}
	return false
}

// travel reads one stream, until it ends, ctx is done or most blocks have arrived.
func (c *traveler) travel(ctx context.Context, n *network, most int) {
	client := n.client()
	defer client.CloseIdleConnections()
	args := map[string]any{"after": c.after}
	document := "subscription($after:String){blocks(after:$after){id cursor}}"
	if c.after == nil {
		args, document = nil, "subscription{blocks{id cursor}}"
	}
	if c.onlyMain {
		document = strings.Replace(strings.Replace(document, "blocks{", "blocks(){", 1), "blocks(",
			"blocks(filter:{workchain_id:{eq:-1}} ", 1)
	}
	responses := readEvents
	if strings.HasPrefix(c.transport, "graphql") {
		responses = readFrames
	}
	for response := range responses(ctx, client, c.transport, body(document, args)) {
		if most--; !c.take(response) || most == 0 {
			return
		}
	}
}

// readEvents yields the responses of an event stream or a multipart stream.
func readEvents(ctx context.Context, client *http.Client, media, body string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		r, err := http.NewRequestWithContext(ctx, "POST", "http://api.example/demo/graphql", strings.NewReader(body))
		if err != nil {
			panic(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", media)
		res, err := client.Do(r)
		if err != nil {
			return
		}
		defer res.Body.Close()
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			line := sc.Text()
			data, ok := strings.CutPrefix(line, "data: ")
			if part, isPart := strings.CutPrefix(line, `{"payload":`); isPart {
				data, ok = strings.TrimSuffix(part, "}"), true
				if errors, failed := strings.CutPrefix(part, "null,"); failed {
					data = "{" + errors
				}
			}
			if ok && data != "" && !yield([]byte(data)) {
				return
			}
		}
	}
}

// readFrames yields the responses on a socket.
func readFrames(ctx context.Context, client *http.Client, protocol, body string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		conn, _, err := websocket.Dial(ctx, "ws://api.example/demo/graphql", &websocket.DialOptions{
			HTTPClient: client, Subprotocols: []string{protocol},
		})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		kind := map[string]string{"graphql-ws": "start", "graphql-transport-ws": "subscribe"}[protocol]
		_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`))
		_ = conn.Write(ctx, websocket.MessageText, []byte(`{"id":"1","type":"`+kind+`","payload":`+body+`}`))
		for {
			_, frame, err := conn.Read(ctx)
			if err != nil {
				return
			}
			var m struct {
				Type    string
				Payload json.RawMessage
			}
			_ = json.Unmarshal(frame, &m)
			switch response := string(m.Payload); {
			case m.Type == "error" && response[0] == '[':
				yield([]byte(`{"errors":` + response + `}`))
				return
			case m.Type == "error", m.Type == "connection_error":
				yield([]byte(`{"errors":[` + response + `]}`))
				return
			case m.Type == "data", m.Type == "next":
				if !yield(m.Payload) {
					return
				}
			}
		}
	}
}

// The chain is replaced three times under two instances, whose databases fail and which restart meanwhile. Each
// client receives all blocks of its epoch once and in order, wherever it reads them.
func TestClientsOfAReplacedChainLoseNoBlockOnAnyInstance(t *testing.T) {
	const epochs = 4
	var blocks, changed, unavailable int
	seeds := 4
	if raceEnabled {
		seeds = 1 // the detector makes the runs ten times slower
	}
	for seed := range testkit.Seeds(t, seeds) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 77))
			all := randomBlocks(seed, 250)
			chain := memchain.New()
			chain.Replace(epochName(1))
			var down [2]atomic.Bool
			var instances [2]*chaingql.Handler
			var nets [2]atomic.Pointer[network]
			boot := func(i int) {
				instances[i], _ = newHandler(t, breakingBackend{newNoticingBackend(chain), &down[i]}, chaingql.Options{
					WindowSize: []int{3, 50}[seed%2], OutageTimeout: 300 * time.Millisecond,
					ConnectionLifetime: []time.Duration{0, 3 * time.Second}[seed/2%2],
				})
				nets[i].Store(serve(t, mounted(instances[i])))
			}
			boot(0)
			boot(1)
			places := map[string]int{}
			for i, b := range all {
				places[string(b.Cursor)] = i
			}
			var clients []*traveler
			var wait sync.WaitGroup
			transports := []string{
				"text/event-stream", "multipart/mixed;subscriptionSpec=1.0", "graphql-ws", "graphql-transport-ws",
			}
			for i := range 16 {
				c := &traveler{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(i))), transport: transports[i%4],
					onlyMain: i%8 < 4, all: all, places: places, at: -1, codes: map[string]int{}}
				clients = append(clients, c)
				wait.Go(func() {
					until := time.Now().Add(5 * time.Minute)
					for time.Now().Before(until) && !c.whole(epochName(epochs)) {
						stay := time.Duration(1+c.rnd.IntN(4000)) * time.Millisecond
						ctx, leave := context.WithTimeout(t.Context(), stay)
						c.travel(ctx, nets[c.rnd.IntN(2)].Load(), 1+c.rnd.IntN(100))
						leave()
						time.Sleep(time.Duration(c.rnd.IntN(50)) * time.Millisecond)
					}
				})
			}
			for epoch := byte(1); epoch <= epochs; epoch++ {
				if epoch > 1 {
					i := rnd.IntN(2)
					ended := instances[i]
					boot(i)
					ctx, cut := context.WithTimeout(t.Context(), time.Duration(1+rnd.IntN(500))*time.Millisecond)
					wait.Go(func() { defer cut(); _ = ended.Shutdown(ctx) })
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
					chain.Replace(epochName(epoch))
				}
				for i, b := range stamped(epoch, all) {
					commit(t, chain, b)
					time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
					if i%40 == 39 {
						down[i/40%2].Store(!down[i/40%2].Load())
						chain.Interrupt(nil)
					}
				}
				down[0].Store(false)
				down[1].Store(false)
			}
			wait.Wait()
			for _, c := range clients {
				if c.epoch != "" && !c.whole(epochName(epochs)) { // otherwise it began after the last block
					t.Errorf("%s: stopped after block %d of epoch %s: %q", c.transport, c.at, c.epoch, c.history)
				}
				blocks, changed = blocks+c.blocks, changed+c.codes["EPOCH_CHANGED"]
				unavailable += c.codes["SERVICE_UNAVAILABLE"]
			}
		})
	}
	t.Logf("%d blocks, %d new epochs, %d other ends", blocks, changed, unavailable)
	if blocks < seeds*5000 || changed < seeds*25 || unavailable < seeds*25 {
		t.Error("the runs cover too little, see the numbers above")
	}
}

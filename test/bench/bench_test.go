package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"reflect"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"

	"github.com/chaingql/chaingql/test/bench/source"
)

// The benchmark starts its own binary as server and as client. In tests, its binary is the test binary.
func TestMain(m *testing.M) {
	var err error
	switch command(os.Args) {
	case "serve":
		err = serve(os.Args[2:])
	case "client":
		err = client(os.Args[2:])
	case "inprocess":
		err = measureInProcess(os.Args[2:])
	case "floods":
		err = measureFloods(os.Args[2:])
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		log.Fatal(err)
	}
}

func TestSchemaFileMatchesSDL(t *testing.T) {
	if got := chaingql.New(memchain.New(), settings(nil)).SDL(); got != sdl {
		t.Errorf("schema.graphql differs from Handler.SDL; update it: " +
			"go run . sdl >schema.graphql && go generate ./...")
	}
}

// read decodes a response, so that responses that differ only in white space, key order or number
// format compare equal.
func read(t *testing.T, response []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(response, &v); err != nil {
		t.Fatalf("response is not JSON: %v: %.300s", err, response)
	}
	return v
}

func TestGoPeersReturnEqualResponses(t *testing.T) {
	s, err := source.New()
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string][]byte{}
	for _, q := range queries {
		asked[q.name] = q.body
	}
	random := rand.New(rand.NewPCG(3, 4))
	for i := range 20 {
		asked[fmt.Sprint("unseen ", i)], asked[fmt.Sprint("literal ", i)] = unseen(random), literal(random)
	}
	asked["page"] = post(`{blockchain{blocks(first:3,after:"2100m",workchain:-1){edges{cursor node{hash}}`+
		`pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}}}`, nil)
	asked["hex"] = post(`{blockchain{account(address:"`+source.Address(3).String()+`"){info{id balance}}}}`, nil)
	handlers := map[string]map[string]http.Handler{}
	for _, peer := range goPeers {
		if handlers[peer], err = handlersOf(peer, s); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range asked {
		var want any
		for _, peer := range goPeers {
			h := handlers[peer][name]
			if h == nil { // the query is not measured
				if peer == handmade || peer == constant {
					continue
				}
				h = handlers[peer]["balance"]
			}
			got, err := respond(h, body)
			if err != nil {
				t.Errorf("%s, %s: %v", name, peer, err)
				continue
			}
			if response := read(t, got); want == nil {
				want = response
			} else if !reflect.DeepEqual(response, want) {
				t.Errorf("%s: response of %s is\n%s\nwant\n%v", name, peer, got, want)
			}
		}
	}
}

func TestHandwrittenPeerSendsTheHeadersOfChaingql(t *testing.T) {
	s, err := source.New()
	if err != nil {
		t.Fatal(err)
	}
	var want http.Header
	for _, peer := range []string{own, handmade} {
		h, err := open(peer, s, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := newCaller(t.Context(), h)
		c.call(queries[1].body)
		if want == nil {
			want = c.sent.header.Clone()
		} else if !reflect.DeepEqual(c.sent.header, want) {
			t.Errorf("%s sends the headers %v, want %v", peer, c.sent.header, want)
		}
	}
}

func TestHandwrittenPeerParsesRequestsStrictly(t *testing.T) {
	s, err := source.New()
	if err != nil {
		t.Fatal(err)
	}
	h, err := open(handmade, s, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	valid := string(queries[1].body)
	for _, body := range []string{"", "{", valid + "{}", valid + " x", `{"query":1}`, `{"query":"","more":1}`,
		valid[:len(valid)-1]} {
		c := newCaller(t.Context(), h)
		if c.call([]byte(body)); c.sent.status < 400 {
			t.Errorf("the request %.50q received the status %d, want an error", body, c.sent.status)
		}
	}
}

func TestNodePeersReturnSameResponsesAsChaingql(t *testing.T) {
	if err := nodeReady(); err != nil {
		testkit.Missing(t, "a Node.js peer ("+err.Error()+")")
	}
	s, err := source.New()
	if err != nil {
		t.Fatal(err)
	}
	h, err := open(own, s, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []string{mercurius, yoga} {
		server, err := launchNode(t.Context(), peer, s)
		if err != nil {
			t.Fatal(err)
		}
		defer server.stop()
		for _, q := range queries {
			if q.stored {
				continue
			}
			want, err := respond(h, q.body)
			if err != nil {
				t.Fatal(err)
			}
			response, err := http.Post("http://"+server.addr+path, "application/json", bytes.NewReader(q.body))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(read(t, got), read(t, want)) {
				t.Errorf("%s: response of %s is\n%s\nwant\n%s", q.name, peer, got, want)
			}
		}
	}
}

// A live chain serves the newest blocks without the Backend, and the rows "quiet" and "history" measure
// reads from it.
func TestOnlyStoredQueriesNeedTheBackend(t *testing.T) {
	for _, peer := range []string{own, handmade} {
		for _, q := range queries[1:] {
			s, err := source.New()
			if err != nil {
				t.Fatal(err)
			}
			h, err := open(peer, s, q.stored, nil)
			if err != nil {
				t.Fatal(err)
			}
			s.Prune("z") // now the Backend has only the newest block
			response, err := respond(h, q.body)
			if q.name == "history" {
				if err == nil {
					t.Errorf("%s, %s: got the response %.80s without the Backend's blocks", peer, q.name, response)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			want := 50
			if q.stored || q.name == "latest" {
				want = 1
			}
			if n := bytes.Count(response, []byte(`"block/`)); n != want {
				t.Errorf("%s, %s: response has %d blocks, want %d", peer, q.name, n, want)
			}
		}
	}
}

func TestEveryBenchmarkPartRuns(t *testing.T) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			var out bytes.Buffer
			r := newReport(&out)
			if err := p.run(t.Context(), quick, r); err != nil {
				t.Fatalf("part failed: %v; output:\n%s", err, &out)
			}
			if err := r.write(&out, environment()); err != nil {
				t.Fatal(err)
			}
			if len(r.tables) == 0 || len(r.targets.rows) == 0 {
				t.Errorf("part reported no table or no target:\n%s", &out)
			}
			t.Log(out.String())
		})
	}
}

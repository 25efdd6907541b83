package chaingql_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/big"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// newHandler returns a Handler, which is shut down at the end of the test, and its log.
func newHandler(t testing.TB, b chaingql.Backend, opts chaingql.Options) (*chaingql.Handler, *testkit.Buffer) {
	t.Helper()
	log := &testkit.Buffer{}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	}
	h := chaingql.New(b, &opts)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown at the end of the test returned %v", err)
		}
	})
	return h, log
}

// mounted returns a mux with the handler, which is mounted as in the package comment.
func mounted(h http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	return mux
}

// do sends one request. pairs are names and values of headers.
func do(h http.Handler, method, target, body string, pairs ...string) *httptest.ResponseRecorder {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, target, reader)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Add(pairs[i], pairs[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// post sends a JSON body to the project demo.
func post(h http.Handler, body string, pairs ...string) *httptest.ResponseRecorder {
	return do(h, "POST", "/demo/graphql", body, append(pairs, "Content-Type", "application/json")...)
}

// query sends a document with variables, which may be nil, and returns the response body.
func query(h http.Handler, document string, variables any) string {
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		panic(err)
	}
	return post(h, string(body)).Body.String()
}

// reply is a decoded response.
type reply struct {
	Data   json.RawMessage
	Errors []struct {
		Message    string
		Path       []any
		Extensions map[string]any
	}
}

func parse(t testing.TB, response string) reply {
	t.Helper()
	var r reply
	if err := json.Unmarshal([]byte(response), &r); err != nil {
		t.Fatalf("the response is not valid JSON: %v: %s", err, response)
	}
	return r
}

func (r reply) code() string {
	if len(r.Errors) == 0 {
		return ""
	}
	code, _ := r.Errors[0].Extensions["code"].(string)
	return code
}

// realTime logs why a test does not run in a bubble of testing/synctest.
func realTime(t *testing.T, reason string) {
	t.Helper()
	t.Log("runs in real time: " + reason)
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// abAccount is the account in the recorded reference.
var abAccount = chaingql.Address{ID: [32]byte(bytes.Repeat([]byte{0xab}, 32))}

const wholeShard = 0x8000000000000000

func hash(s string) (h chaingql.Hash) {
	for i := range h {
		h[i] = unhex(s[2*i])<<4 | unhex(s[2*i+1])
	}
	return h
}

func unhex(c byte) byte { return byte(strings.IndexByte("0123456789abcdef", c)) }

func masterBlock(seqNo uint32, root string) chaingql.Block {
	return chaingql.Block{
		Workchain: -1, Shard: wholeShard, SeqNo: seqNo, Hash: hash(root), Time: time.Unix(1795205730, 0),
		Cursor: chaingql.ChainOrder(-1, wholeShard, seqNo, 0),
	}
}

// referenceChain returns a chain with the data of the recorded reference.
func referenceChain(t testing.TB) *memchain.Chain {
	t.Helper()
	chain := memchain.New()
	balance, _ := new(big.Int).SetString("1234567890123456789", 10)
	chain.SetBalance(abAccount, balance)
	err := chain.Append(
		masterBlock(800, "3cd6c3102a839c4fdc85840a85d34ac6950de394b7761b156e216bccd14fb8ca"),
		masterBlock(801, "5e36fc5168b1219b9809825bec966102ec1c0fd849af479ab2a97b9d80981a66"),
		masterBlock(802, "c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0"),
	)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// randomBlocks returns n blocks of a masterchain and of the shards of two workchains, ascending by cursor. It returns
// the same blocks for the same seed.
func randomBlocks(seed uint64, n int) []chaingql.Block {
	r := rand.New(rand.NewPCG(seed, 0))
	shards := []struct {
		workchain int32
		shard     uint64
	}{{-1, wholeShard}, {0, 0x4000000000000000}, {0, 0xc000000000000000}, {7, wholeShard}}
	seqNo := make([]uint32, len(shards))
	now := time.Unix(1_600_000_000, 0)
	blocks := make([]chaingql.Block, n)
	for i := range blocks {
		s := r.IntN(len(shards))
		seqNo[s]++
		now = now.Add(time.Duration(r.IntN(3)) * time.Second)
		b := chaingql.Block{
			Workchain: shards[s].workchain, Shard: shards[s].shard, SeqNo: seqNo[s],
			Time: now, Cursor: chaingql.SeqCursor(uint64(10 * (i + 1))),
		}
		for j := range b.Hash {
			b.Hash[j] = byte(r.Uint32())
		}
		blocks[i] = b
	}
	return blocks
}

func chainOf(t testing.TB, blocks []chaingql.Block) *memchain.Chain {
	t.Helper()
	chain := memchain.New()
	if err := chain.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	return chain
}

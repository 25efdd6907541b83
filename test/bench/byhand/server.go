// Package byhand contains two handlers that show how low the costs can be. One is written only for the
// measured queries, and the other has a constant response.
package byhand

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

type request struct {
	Query     string `json:"query"`
	Variables struct {
		Address string `json:"address"`
	} `json:"variables"`
}

type answer struct {
	Data data `json:"data"`
}

type data struct {
	Blockchain blockchain `json:"blockchain"`
}

type blockchain struct {
	Account *account    `json:"account,omitempty"`
	Blocks  *connection `json:"blocks,omitempty"`
}

type account struct {
	Info state `json:"info"`
}

type state struct {
	Address string `json:"address"`
	Balance string `json:"balance"`
}

type connection struct {
	Edges []edge `json:"edges"`
}

type edge struct {
	Node node `json:"node"`
}

type node struct {
	ID         string `json:"id"`
	SeqNo      uint32 `json:"seq_no"`
	Workchain  int32  `json:"workchain_id"`
	Shard      string `json:"shard"`
	Utime      int64  `json:"gen_utime"`
	ChainOrder string `json:"chain_order"`
}

// New returns a handler that decodes requests and encodes responses with encoding/json. It does not
// parse GraphQL: pages maps the query texts that request the last blocks to the number of blocks, any
// other query returns a balance, and a GET opens a WebSocket.
func New(s *source.Source, pages map[string]int) http.Handler {
	live := &stream{source: s, conns: map[net.Conn]struct{}{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			live.serve(w, r)
			return
		}
		var asked request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var found blockchain
		var err error
		if last := pages[asked.Query]; last > 0 {
			found.Blocks, err = blocks(r, s, last)
		} else {
			found.Account, err = balance(r, s, asked.Variables.Address)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		body, err := json.Marshal(answer{data{found}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		write(w, body)
	})
}

func blocks(r *http.Request, s *source.Source, last int) (*connection, error) {
	page, err := s.Page(r.Context(), source.Ask{Last: &last})
	if err != nil {
		return nil, err
	}
	edges := make([]edge, len(page.Blocks))
	for i := range edges {
		b := &page.Blocks[i]
		edges[i].Node = nodeOf(b, "block/"+b.Hash.String())
	}
	return &connection{edges}, nil
}

func nodeOf(b *chaingql.Block, id string) node {
	return node{id, b.SeqNo, b.Workchain, source.Shard(b), b.Time.Unix(), string(b.Cursor)}
}

func balance(r *http.Request, s *source.Source, address string) (*account, error) {
	addr, err := source.Account(address)
	if err != nil {
		return nil, err
	}
	text, err := s.Text(r.Context(), addr, true)
	return &account{state{addr.String(), text}}, err
}

// Constant returns a handler that responds to every request with body.
func Constant(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write(w, body) })
}

func write(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}

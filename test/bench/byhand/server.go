// Package byhand contains two handlers that show how low the costs can be. One is written only for the
// measured queries, and the other has a constant response.
package byhand

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/source"
)

// Queries holds the texts of the queries that the handler knows.
type Queries struct {
	// Balance requests the balance of the account $address.
	Balance string

	// Pages has a query for blocks of the masterchain for each text.
	Pages map[string]chaingql.BlocksQuery
}

type request struct {
	Query     string `json:"query"`
	Variables *struct {
		Address string `json:"address"`
	} `json:"variables"`
}

// A server knows each query by its text and appends the bytes of the response.
type server struct {
	source  *source.Source
	queries Queries
	stored  bool
	buffers sync.Pool // of *buffer
	live    *stream
}

// A buffer holds the bytes of a request and of its response.
type buffer struct{ received, sent []byte }

// maxBody is the maximum size of a request in bytes.
const maxBody = 64 << 10

// New returns a handler that does no more than the queries need. It does not parse GraphQL: it compares
// the text of a query with those in queries. If stored is false, it appends pages directly from a slice of
// the blocks. If stored is true, it reads them from the Backend. A GET opens a WebSocket.
func New(s *source.Source, queries Queries, stored bool) http.Handler {
	h := &server{source: s, queries: queries, stored: stored, live: &stream{source: s, conns: map[net.Conn]struct{}{}}}
	h.buffers.New = func() any { return new(buffer) }
	return h
}

func (h *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		h.live.serve(w, r)
		return
	}
	b := h.buffers.Get().(*buffer)
	defer h.buffers.Put(b)
	asked, err := b.read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if b.sent, err = h.respond(b.sent[:0], r, asked); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, b.sent)
}

// read decodes the body of a request. It accepts nothing but one JSON object with the known fields.
func (b *buffer) read(r *http.Request) (request, error) {
	var asked request
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		return asked, errors.New("the body has no length or is too large")
	}
	n := int(r.ContentLength)
	if cap(b.received) < n {
		b.received = make([]byte, n)
	}
	b.received = b.received[:n]
	if _, err := io.ReadFull(r.Body, b.received); err != nil {
		return asked, err
	}
	d := json.NewDecoder(bytes.NewReader(b.received))
	d.DisallowUnknownFields()
	if err := d.Decode(&asked); err != nil {
		return asked, err
	}
	if d.InputOffset() != int64(n) {
		return asked, errors.New("the body has more than one value")
	}
	return asked, nil
}

func (h *server) respond(dst []byte, r *http.Request, asked request) ([]byte, error) {
	dst = append(dst, `{"data":{"blockchain":{`...)
	if q, ok := h.queries.Pages[asked.Query]; ok {
		blocks, err := h.page(r, q)
		if err != nil {
			return dst, err
		}
		dst = append(dst, `"blocks":{"edges":[`...)
		for i := range blocks {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendNode(append(dst, `{"node":`...), &blocks[i], "block/"), '}')
		}
		return append(dst, "]}}}}"...), nil
	}
	if asked.Query != h.queries.Balance || asked.Variables == nil {
		return dst, errors.New("unknown query")
	}
	addr, err := source.Account(asked.Variables.Address)
	if err != nil {
		return dst, err
	}
	nano, err := h.source.Balance(r.Context(), addr)
	if err != nil {
		return dst, err
	}
	dst = append(append(dst, `"account":{"info":{"address":"`...), addr.String()...)
	return append(nano.Append(append(dst, `","balance":"`...), 10), `"}}}}}`...), nil
}

func (h *server) page(r *http.Request, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if h.stored {
		return h.source.Blocks(r.Context(), q)
	}
	blocks := h.source.Masters()
	return blocks[max(0, len(blocks)-q.Last):], nil
}

// appendNode appends a block as JSON. None of its values needs an escape.
func appendNode(dst []byte, b *chaingql.Block, kind string) []byte {
	dst = append(append(dst, `{"id":"`...), kind...)
	dst = append(hex.AppendEncode(dst, b.Hash[:]), `","seq_no":`...)
	dst = append(strconv.AppendUint(dst, uint64(b.SeqNo), 10), `,"workchain_id":`...)
	dst = append(strconv.AppendInt(dst, int64(b.Workchain), 10), `,"shard":"`...)
	for shift := 60; shift >= 0; shift -= 4 {
		dst = append(dst, "0123456789abcdef"[b.Shard>>shift&15])
	}
	dst = append(strconv.AppendInt(append(dst, `","gen_utime":`...), b.Time.Unix(), 10), `,"chain_order":"`...)
	return append(append(dst, b.Cursor...), `"}`...)
}

// Constant returns a handler that reads every request and responds with body. It reads the request to its end, because
// net/http then watches the connection, as it does for all handlers that need the request.
func Constant(body []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		write(w, body)
	})
}

// write sends a response with the same headers as chaingql.
func write(w http.ResponseWriter, body []byte) {
	header := w.Header()
	header.Set("Vary", "Authorization, Accept, Origin")
	header.Set("Content-Type", "application/json; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // an error means that the client has disconnected
}

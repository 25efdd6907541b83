package soak_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"
)

var basic = "Basic " + base64.StdEncoding.EncodeToString([]byte(":"+secret))

// A checkedQuery is a query and a function that checks its response.
type checkedQuery struct {
	document  string
	variables string
	judge     func(data responseData) error
}

// A responseData is the data of a response. It has the fields of all queries.
type responseData struct {
	Blockchain struct {
		Account struct {
			ID   string
			Info struct{ Address, Balance string }
		}
		Blocks struct {
			Edges []struct {
				Cursor string
				Node   block
			}
		}
	}
}

const (
	askBalance = `query Balance($a: String!) { blockchain { ` +
		`account(address: $a) { info { address balance(format: DEC) } } } }`
	askPage = `query Page($w: Int, $n: Int, $b: String) { blockchain { blocks(workchain: $w, last: $n, before: $b) {
  edges { cursor node { hash seq_no workchain_id shard chain_order } } pageInfo { startCursor hasPreviousPage } } } }`
	askLatest = `{ blockchain { blocks(last: 1) { edges { node { hash seq_no workchain_id shard chain_order } } } } }`
)

// randomQuery returns a random query.
func (w *world) randomQuery() checkedQuery {
	seen := int(w.seen.Load())
	switch rand.IntN(3) {
	case 0:
		account := rand.IntN(accounts)
		a, due := address(account).String(), balance(account).String()
		return checkedQuery{askBalance, fmt.Sprintf(`{"a":%q}`, a), func(data responseData) error {
			if i := data.Blockchain.Account.Info; i.Address != a || i.Balance != due {
				return fmt.Errorf("account %s: balance %s expected, got %+v", a, due, i)
			}
			return nil
		}}
	case 1:
		before, n, of := seen-rand.IntN(kept/2), 1+rand.IntN(50), interests[rand.IntN(2)]
		return checkedQuery{askPage, fmt.Sprintf(`{"w":%s,"n":%d,"b":%q}`, of.workchain, n, cursorAt(before)),
			func(data responseData) error {
				edges, due := data.Blockchain.Blocks.Edges, before
				if len(edges) != n {
					return fmt.Errorf("a page of %d blocks has %d", n, len(edges))
				}
				for i := n - 1; i >= 0; i-- {
					due = of.before(due)
					if got, _, err := edges[i].Node.number(); err != nil || got != due ||
						edges[i].Cursor != cursorAt(due) {
						return fmt.Errorf("block %d with cursor %q, want block %d: %w", got, edges[i].Cursor, due, err)
					}
				}
				return nil
			}}
	}
	return checkedQuery{askLatest, "null", func(data responseData) error {
		edges := data.Blockchain.Blocks.Edges
		if len(edges) != 1 {
			return fmt.Errorf("%d blocks for last: 1", len(edges))
		}
		n, _, err := edges[0].Node.number()
		if err == nil && n < seen {
			err = fmt.Errorf("latest block is %d after a subscriber received %d", n, seen)
		}
		return err
	}}
}

// retryPause is the pause before a retry after SERVICE_UNAVAILABLE.
const retryPause = 100 * time.Millisecond

// query sends queries at the current rate until ctx is done.
func (w *world) query(ctx context.Context) {
	for ctx.Err() == nil {
		start := time.Now()
		if err := w.ask(ctx, w.randomQuery()); ctx.Err() == nil {
			if err == nil {
				w.latency.add(time.Since(start))
			}
			w.recordResult("query", start, err)
			if errors.Is(err, errUnavailable) {
				pause(ctx, retryPause)
			}
		}
		pause(ctx, time.Duration(w.pace.Load())-time.Since(start))
	}
}

// ask sends a query by POST or GET, with its text or its hash.
func (w *world) ask(ctx context.Context, q checkedQuery) error {
	get, byHash, locked := rand.IntN(3) == 0, rand.IntN(3) == 0, rand.IntN(2) == 0
	extensions := ""
	if byHash {
		extensions = fmt.Sprintf(`{"persistedQuery":{"version":1,"sha256Hash":"%x"}}`,
			sha256.Sum256([]byte(q.document)))
	}
	document := q.document
	if byHash {
		document = ""
	}
	for {
		data, err := w.exchange(ctx, get, locked, document, q.variables, extensions)
		switch {
		case errors.Is(err, errNotPersisted) && document == "":
			document = q.document // sending both registers the document
			continue
		case err != nil:
			return err
		}
		return q.judge(data)
	}
}

var errNotPersisted = errors.New("PERSISTED_QUERY_NOT_FOUND")

// exchange sends one request.
func (w *world) exchange(ctx context.Context, get, locked bool, document, variables,
	extensions string) (data responseData, err error) {
	project := "open"
	if locked {
		project = "locked"
	}
	var r *http.Request
	if get {
		values := url.Values{"variables": {variables}}
		if document != "" {
			values.Set("query", document)
		}
		if extensions != "" {
			values.Set("extensions", extensions)
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodGet, w.url(project)+"?"+values.Encode(), nil)
	} else {
		fields := map[string]any{"variables": json.RawMessage(variables)}
		if document != "" {
			fields["query"] = document
		}
		if extensions != "" {
			fields["extensions"] = json.RawMessage(extensions)
		}
		text, bad := json.Marshal(fields)
		if bad != nil {
			return data, bad
		}
		r, err = http.NewRequestWithContext(ctx, http.MethodPost, w.url(project), bytes.NewReader(text))
	}
	if err != nil {
		return data, err
	}
	r.Header.Set("Content-Type", "application/json")
	if locked {
		r.Header.Set("Authorization", basic)
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return data, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return data, err
	}
	w.codes.add(codeOf(resp.StatusCode, text))
	var a struct {
		Data   responseData
		Errors []graphqlError
	}
	switch err := json.Unmarshal(text, &a); {
	case err != nil:
		return data, fmt.Errorf("%w: %.200q", err, text)
	case len(a.Errors) > 0 && a.Errors[0].Extensions.Code == errNotPersisted.Error():
		return data, errNotPersisted
	case len(a.Errors) > 0:
		return data, a.Errors[0].err()
	case resp.StatusCode != http.StatusOK:
		return data, fmt.Errorf("status %s", resp.Status)
	}
	return a.Data, nil
}

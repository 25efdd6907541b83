// Package chain is a typed client of a chaingql service, made with genqlient from
// ../schema.graphql and ../operations.graphql: balances, and live blocks that go on
// where they were when the line is lost.
package chain

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"time"

	"github.com/Khan/genqlient/graphql"
)

//go:generate go tool genqlient

// A Client asks a service for one of its projects. Its methods may be called
// concurrently.
type Client struct {
	// Silence is how long nothing may come on a line before it counts as lost. It
	// must be more than the rhythm of the service's pings (15 seconds, unless its
	// host has set another). New sets 40 seconds; change it before the first use.
	Silence time.Duration

	queries graphql.Client
	socket  string         // where subscriptions are made
	init    map[string]any // what they begin with
}

// New returns a Client of a service ("https://chain.example"), for a project that
// it serves, and with the project's secret; "" where it has none.
func New(service, project, secret string) *Client {
	endpoint := strings.TrimSuffix(service, "/") + "/" + project + "/graphql"
	c := &Client{
		Silence: 40 * time.Second,
		queries: graphql.NewClient(endpoint, &authorized{http.Client{Timeout: 30 * time.Second}, secret}),
		socket:  "ws" + strings.TrimPrefix(endpoint, "http"),
	}
	if secret != "" {
		c.init = map[string]any{"Authorization": "Basic " + base64.StdEncoding.EncodeToString([]byte(":"+secret))}
	}
	return c
}

// authorized sends the secret along with queries. The user's name is empty.
type authorized struct {
	http   http.Client
	secret string
}

func (a *authorized) Do(r *http.Request) (*http.Response, error) {
	if a.secret != "" {
		r.SetBasicAuth("", a.secret)
	}
	return a.http.Do(r)
}

// Balance is what an account has, in nano-units; 0 where the chain has never seen it.
func (c *Client) Balance(ctx context.Context, address string) (*big.Int, error) {
	answer, err := Balance(ctx, c.queries, address)
	if err != nil {
		return nil, err
	}
	written := answer.Blockchain.Account.Info.Balance // what is null would be ""
	nano, ok := new(big.Int).SetString(written, 10)
	if !ok {
		return nil, fmt.Errorf("chain: a balance of %q", written)
	}
	return nano, nil
}

// Newest is the cursor of the newest block: from there on [Client.Blocks] gives
// what is new.
func (c *Client) Newest(ctx context.Context) (string, error) {
	answer, err := Newest(ctx, c.queries)
	if err != nil {
		return "", err
	}
	return answer.Blockchain.Blocks.PageInfo.EndCursor, nil
}

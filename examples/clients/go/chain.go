// Package chain is a typed client for a chaingql service. It reads balances and follows blocks, even if
// the connection is lost. genqlient generates its types from ../schema.graphql and
// ../operations.graphql.
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

// A Client queries one project of a service. Its methods may be called concurrently.
type Client struct {
	// Silence is the time without a message after which a connection counts as lost. It must be
	// longer than the interval between two pings of the service (15 seconds by default). Change it
	// only before the first call of Blocks. Default: 40 seconds.
	Silence time.Duration

	queries graphql.Client
	socket  string         // URL for WebSockets
	init    map[string]any // payload of connection_init
}

// New returns a Client for a project of a service. service is the URL of the service, for example
// "https://chain.example". secret is the secret of the project, or "" if the project has none.
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

// authorized is an HTTP client that sends the secret with each request, using Basic authentication with
// an empty user name.
type authorized struct {
	http   http.Client
	secret string
}

// Do implements graphql.Doer.
func (a *authorized) Do(r *http.Request) (*http.Response, error) {
	if a.secret != "" {
		r.SetBasicAuth("", a.secret)
	}
	return a.http.Do(r)
}

// Balance returns the balance of an account in nano-units. If the account does not exist, it returns 0.
func (c *Client) Balance(ctx context.Context, address string) (*big.Int, error) {
	answer, err := Balance(ctx, c.queries, address)
	if err != nil {
		return nil, err
	}
	written := answer.Blockchain.Account.Info.Balance // "" if the field is null
	nano, ok := new(big.Int).SetString(written, 10)
	if !ok {
		return nil, fmt.Errorf("chain: invalid balance %q", written)
	}
	return nano, nil
}

// Newest returns the cursor of the newest block. If you pass it to [Client.Blocks], Blocks yields only
// newer blocks.
func (c *Client) Newest(ctx context.Context) (string, error) {
	answer, err := Newest(ctx, c.queries)
	if err != nil {
		return "", err
	}
	return answer.Blockchain.Blocks.PageInfo.EndCursor, nil
}

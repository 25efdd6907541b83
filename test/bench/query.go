package main

import (
	"encoding/json"
	"fmt"

	"github.com/chaingql/chaingql"

	"github.com/chaingql/chaingql/test/bench/byhand"
	"github.com/chaingql/chaingql/test/bench/source"
)

// These are the operations of the benchmark. Queries for blocks and subscriptions select the same block fields.
const (
	blockFields = `id seq_no workchain_id shard gen_utime chain_order`

	balanceText = `query balance($address: String!) { blockchain { ` +
		`account(address: $address) { info { address balance(format: DEC) } } } }`
	latestText = `query latest { blockchain { blocks(workchain: -1, last: 1) { edges { node { ` + blockFields +
		` } } } } }`
	last50Text = `query page { blockchain { blocks(workchain: -1, last: 50) { edges { node { ` + blockFields +
		` } } } } }`
	historyText = `query history { blockchain { blocks(workchain: -1, first: 50, after: "` + distant +
		`") { edges { node { ` + blockFields + ` } } } } }`
	streamText = `subscription { blocks { ` + blockFields + ` } }`

	// distant is the cursor of the 32nd masterchain block, which is older than the window of recent blocks.
	distant = "120m"
)

// A query is one of the measured queries.
type query struct {
	name string
	body []byte // body of a POST

	// stored reports that the query is measured with a handler whose stream has no new block, so that pages
	// come from the Backend. The other queries are measured with a live stream.
	stored bool
}

var queries = []query{
	{name: "balance", body: post(balanceText, map[string]any{"address": source.Address(7).String()})},
	{name: "latest", body: post(latestText, nil)},
	{name: "last 50", body: post(last50Text, nil)},
	{name: "quiet latest", body: post(latestText, nil), stored: true},
	{name: "quiet last 50", body: post(last50Text, nil), stored: true},
	{name: "history", body: post(historyText, nil), stored: true},
}

// known holds the queries for the handwritten handler.
var known = func() byhand.Queries {
	masters := int32(-1)
	return byhand.Queries{Balance: balanceText, Pages: map[string]chaingql.BlocksQuery{
		latestText: {Workchain: &masters, Last: 1}, last50Text: {Workchain: &masters, Last: 50},
		historyText: {Workchain: &masters, First: 50, After: distant},
	}}
}()

// post returns the body of a POST with a document and its variables.
func post(text string, variables map[string]any) []byte {
	request := struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables,omitempty"`
	}{text, variables}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err) // text and variables consist of strings, numbers, lists and maps
	}
	return body
}

// A stream is the subscription of one client.
type stream struct{ id, payload string }

// sameStream returns the subscription that all clients share.
func sameStream(int) stream { return stream{"1", string(post(streamText, nil))} }

// differentStreams is the number of distinct subscriptions that differentStream returns.
const differentStreams = 1000

// differentStream returns the subscription of client i. The subscriptions differ in text, field order,
// filter, variables and id. Every filter matches all appended blocks, so that all clients receive the
// same number of messages.
func differentStream(i int) stream {
	n := i % differentStreams
	orders := []string{
		`id seq_no workchain_id shard gen_utime chain_order`, `chain_order id seq_no workchain_id shard gen_utime`,
		`gen_utime chain_order id seq_no workchain_id shard`, `seq_no id shard workchain_id chain_order gen_utime`,
	}
	fields := orders[n%len(orders)]
	var body []byte
	switch n / len(orders) % 5 {
	case 0:
		body = post(fmt.Sprintf(`subscription($f: BlockFilter) { b%d: blocks(filter: $f) { %s } }`, n, fields),
			map[string]any{"f": map[string]any{"seq_no": map[string]any{"gt": n}}})
	case 1:
		const filter = `{workchain_id: {eq: -1}, seq_no: {ge: %d}}`
		body = post(fmt.Sprintf(`subscription s%d { blocks(filter: `+filter+`) { %s } }`, n, n, fields), nil)
	case 2:
		body = post(`subscription($f: BlockFilter) { blocks(filter: $f) { `+fields+` } }`,
			map[string]any{"f": map[string]any{"workchain_id": map[string]any{"in": []int{-1, n}}}})
	case 3:
		body = post(fmt.Sprintf(`subscription s%d($n: Float) { blocks(filter: {gen_utime: {gt: $n}}) { %s } }`, n,
			fields), map[string]any{"n": n})
	default:
		const filter = `{shard: {ne: "%016x"}, OR: {seq_no: {lt: %d}}}`
		body = post(fmt.Sprintf(`subscription { blocks(filter: `+filter+`) { %s } }`, n, n, fields), nil)
	}
	return stream{fmt.Sprintf("sub-%05d", i), string(body)}
}

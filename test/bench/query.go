package main

import (
	"encoding/json"
	"fmt"

	"github.com/chaingql/chaingql/test/bench/source"
)

// What is asked. All blocks show the same fields, in queries and in
// subscriptions.
const (
	blockFields = `id seq_no workchain_id shard gen_utime chain_order`

	balanceText = `query balance($address: String!) { blockchain { account(address: $address) { info { address balance(format: DEC) } } } }`
	latestText  = `query latest { blockchain { blocks(last: 1) { edges { node { ` + blockFields + ` } } } } }`
	last50Text  = `query page { blockchain { blocks(last: 50) { edges { node { ` + blockFields + ` } } } } }`
	streamText  = `subscription { blocks { ` + blockFields + ` } }`
)

// A query is one of the three that everything is measured by.
type query struct {
	name string
	body []byte // of a POST
}

var queries = []query{
	{"balance", post(balanceText, map[string]any{"address": source.Address(7).String()})},
	{"latest", post(latestText, nil)},
	{"last 50", post(last50Text, nil)},
}

// pages are the texts that the handler written by hand knows, and how many
// blocks they want.
var pages = map[string]int{latestText: 1, last50Text: 50}

// post is a request's body.
func post(text string, variables map[string]any) []byte {
	request := struct {
		Query     string         `json:"query"`
		Variables map[string]any `json:"variables,omitempty"`
	}{text, variables}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err) // strings and numbers
	}
	return body
}

// A stream is what one subscriber asks for.
type stream struct{ id, payload string }

// sameStream is what all subscribers ask for where they ask for the same.
func sameStream(int) stream { return stream{"1", string(post(streamText, nil))} }

// differentStreams is how many different ones there are where they differ.
const differentStreams = 1000

// differentStream is what a subscriber asks for where they differ: in text, in
// the fields' order, in filter, variables and id. Every filter lets the blocks
// pass that are appended, so that all get as many messages.
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
		body = post(fmt.Sprintf(`subscription s%d { blocks(filter: {workchain_id: {eq: -1}, seq_no: {ge: %d}}) { %s } }`, n, n, fields), nil)
	case 2:
		body = post(`subscription($f: BlockFilter) { blocks(filter: $f) { `+fields+` } }`,
			map[string]any{"f": map[string]any{"workchain_id": map[string]any{"in": []int{-1, n}}}})
	case 3:
		body = post(fmt.Sprintf(`subscription s%d($n: Float) { blocks(filter: {gen_utime: {gt: $n}}) { %s } }`, n, fields), map[string]any{"n": n})
	default:
		body = post(fmt.Sprintf(`subscription { blocks(filter: {shard: {ne: "%016x"}, OR: {seq_no: {lt: %d}}}) { %s } }`, n, n, fields), nil)
	}
	return stream{fmt.Sprintf("sub-%05d", i), string(body)}
}

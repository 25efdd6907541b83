package attack

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// block is all fields of a block.
const block = "id hash seq_no shard chain_order gen_utime workchain_id __typename "

// eight is eight operations with the fragment F0.
var eight = times(8, "query Q#{blockchain{...F0}}")

// fragmentChain returns n fragments, the first of which is F0. Each one spreads the next one.
func fragmentChain(n, fields int) string {
	text := ""
	for i := range n {
		next := fmt.Sprintf("...F%d", i+1)
		if i == n-1 {
			next = ""
		}
		text += fmt.Sprintf("fragment F%d on BlockchainQuery{blocks(last:1){edges{node{%s}}}%s}", i,
			strings.Repeat(block, fields), next)
	}
	return text
}

// variants returns documents that the server compiles many times, because it compiles a document once
// per operation and once per combination of @skip and @include values.
func variants(full bool) []attack {
	const page = "blocks(last:1){edges{cursor node{" + block + "}}}"
	// A request that contains several operations must name one. The server compiles all of them.
	named := func(name, text string) attack {
		return posted(name, either, func() string {
			return asJSON(map[string]any{"query": text, "operationName": "Q0"})
		})
	}
	crossed := ""
	for i := range 7 {
		crossed += fmt.Sprintf("fragment F%d on BlockchainQuery{b:%s", i, page)
		for j := i + 1; j < 7; j++ {
			crossed += fmt.Sprintf("...F%d ", j)
		}
		crossed += "}"
	}
	all := []attack{
		named("8 operations of 8 pages each", times(8, "query Q#{blockchain{"+strings.Repeat(page, 8)+"}}")),
		named("8 operations that share a chain of 16 fragments", eight+fragmentChain(16, 8)),
		named("8 operations that share a chain of 32 fragments", eight+fragmentChain(32, 4)),
		named("8 operations that share fragments that spread each other", eight+crossed),
		named("8 operations of 45 aliases", "query Q0{blockchain{"+times(45, "a#:"+page)+"}}"+times(7,
			"query R#{blockchain{...on BlockchainQuery{"+page+"}}}")),
		named("8 operations with 4 conditions each", times(8,
			"query Q#($a:Boolean=true){blockchain{"+strings.Repeat("...@include(if:$a){"+page+"}", 4)+"}}")),
	}
	all = append(all, grownDoc("operations that spread 30 fragments", refused, 4, 8192, func(n int) string {
		return times(n, "query Q#{"+times(30, "...F# ")+"}") + times(30, "fragment F# on Query{info{version time}}")
	})...)
	n, lasting := 1000, 1200*time.Millisecond
	if full {
		n, lasting = 10_000, 4*time.Second
	}
	conditions := "query(" + times(30, "$v#:Boolean!") + "){blockchain{" +
		times(30, "...@include(if:$v#){a#:"+page+"}") + "}}"
	variant := func(text string, i int) string {
		var values []string
		for bit := range 30 {
			// Most fields are included, so that each variant is large.
			values = append(values, fmt.Sprintf(`"v%d":%t`, bit, i>>bit&1 == 0))
		}
		return `{"query":` + asJSON(text) + `,"variables":{` + strings.Join(values, ",") + `}}`
	}
	all = append(all,
		attack{name: fmt.Sprintf("%d variants of a document", n), want: answered,
			within: time.Duration(n) * 10 * time.Millisecond,
			cpu:    time.Duration(n) * 5 * time.Millisecond, do: func(s *target) (outcome, error) {
				s.timeout = max(time.Minute, time.Duration(n)*10*time.Millisecond)
				return s.many(n, func(i int) string { return variant(conditions, i) })
			}},
	)
	// Each connection sends its own variants or documents.
	for _, k := range []struct {
		name string
		text func(conn, i int) string
	}{
		{"variants of one document", func(conn, i int) string { return variant(conditions, conn<<20|i) }},
		{"documents with 8 operations", func(conn, i int) string {
			return asJSON(map[string]string{"operationName": "Q0",
				"query": fmt.Sprintf("#%d,%d\n", conn, i) + eight + fragmentChain(16, 8)})
		}},
		{"documents with conditions", func(conn, i int) string {
			return variant(fmt.Sprintf("#%d,%d\n", conn, i)+conditions, i)
		}},
	} {
		conn := 0
		all = append(all, withConnectionsFor(lasting, "48 connections with "+k.name, 48,
			func(s *target) (net.Conn, error) {
				conn++
				own := conn
				return s.repeat(burstPause, func(i int) []byte {
					return request("POST", path, k.text(own, i), "Connection: keep-alive")
				})
			}, func(s *target) error {
				if o, err := s.post(goodBody); err != nil || !o.meets(answered) {
					return fmt.Errorf("honest query: outcome %v, %w", o, errors.Join(err, errUnhealthy))
				}
				return nil
			}))
	}
	return all
}

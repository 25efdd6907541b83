package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/chaingql/chaingql/test/bench/source"
)

// unseenDocuments measures requests with documents that the server has not seen before.
func unseenDocuments(ctx context.Context, size sizes, r *report) error {
	defer processors(1)()
	s, err := source.New()
	if err != nil {
		return err
	}
	peers := []string{own, gqlgenGo, gophersGo}
	all, err := callers(ctx, 1, s, peers...)
	if err != nil {
		return err
	}
	t := r.table("Unseen documents: CPU per query (µs)", append([]string{"document"}, peers...)...)
	for _, kind := range []struct {
		name string
		body func(*rand.Rand) []byte
		want func(costs)
	}{
		{"new aliases, field order and white space", unseen, func(c costs) {
			r.atMost("an unseen document: our CPU over gqlgen's", c.ratio(own, gqlgenGo), 1)
			r.atMost("an unseen document: our CPU over graph-gophers's", c.ratio(own, gophersGo), 1.25)
		}},
		{"another address as a literal", literal, func(c costs) {
			r.atLeast("another literal in a document: CPU of gqlgen over ours (aim: 10)", c.ratio(gqlgenGo, own), 3)
			r.atLeast("another literal in a document: CPU of graph-gophers over ours (aim: 10)",
				c.ratio(gophersGo, own), 3)
		}},
	} {
		var contenders []contender
		for _, peer := range peers {
			random := rand.New(rand.NewPCG(1, 2)) // the same texts for every peer
			some := func(n int) [][]byte {
				bodies := [][]byte{}
				for range n {
					bodies = append(bodies, kind.body(random))
				}
				return bodies
			}
			for _, body := range some(20) {
				if _, err := respond(all[peer][queries[0].name][0].handler, body); err != nil {
					return fmt.Errorf("%s: %w", peer, err)
				}
			}
			n := max(20, int(size.slice.Microseconds()/50))
			contenders = append(contenders, contender{peer, func() (float64, error) {
				bodies := some(n)
				return cpuPerCall(n, func(i int) { all[peer][queries[0].name][0].call(bodies[i]) }), nil
			}})
		}
		got, err := alternate(ctx, size.rounds, contenders)
		if err != nil {
			return err
		}
		t.add(kind.name, fmt.Sprintf("%.1f", got.median(own)), fmt.Sprintf("%.1f", got.median(gqlgenGo)),
			fmt.Sprintf("%.1f", got.median(gophersGo)))
		kind.want(got)
	}
	return nil
}

// unseen returns a request with a new document. Its names, field order and white space are random.
func unseen(r *rand.Rand) []byte {
	gap := func() string { return []string{" ", "\n", "  ", "\n  ", "\t", ", "}[r.IntN(6)] }
	mixed := func(fields ...string) string {
		var b strings.Builder
		for _, i := range r.Perm(len(fields)) {
			if r.IntN(2) == 0 {
				fmt.Fprintf(&b, "a%x:%s", r.Uint32(), gap())
			}
			b.WriteString(fields[i] + gap())
		}
		return b.String()
	}
	node := mixed("id", "seq_no", "workchain_id", "shard", "gen_utime", "chain_order")
	account := fmt.Sprintf("account(address: $address)%s{%sinfo {%s}%s}", gap(), gap(),
		mixed("id", "address", "balance(format: DEC)"), gap())
	blocks := fmt.Sprintf("blocks(workchain: -1, last: 1) {%sedges%s{ node {%s} } }", gap(), gap(), node)
	text := fmt.Sprintf("query q%x($address: String!)%s{ blockchain {%s} }", r.Uint64(), gap(), mixed(account, blocks))
	return post(text, map[string]any{"address": source.Address(r.IntN(source.Accounts)).String()})
}

// literal returns a request with a document that contains a random address, in mixed case, as a literal.
func literal(r *rand.Rand) []byte {
	address := []byte(source.Address(r.IntN(source.Accounts)).String())
	for i, c := range address {
		if c >= 'a' && c <= 'f' && r.IntN(2) == 0 {
			address[i] = c - 'a' + 'A'
		}
	}
	return post(fmt.Sprintf(`{ blockchain { account(address: "%s") { info { address balance(format: DEC) } } } }`,
		address), nil)
}

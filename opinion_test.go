package chaingql_test

import (
	"context"
	"encoding/json"
	"math/big"
	"reflect"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
)

// The schema that hosts can read is asked by graphql-go's own executor, which
// shares nothing with ours but the resolvers.
func TestGraphqlGoGivesTheSameData(t *testing.T) {
	blocks := randomBlocks(9, 120)
	chain := chainOf(t, blocks)
	chain.SetBalance(abAccount, new(big.Int).Lsh(big.NewInt(5), 100))
	h, _ := newHandler(t, chain, chaingql.Options{Endpoints: []string{"a.example/graphql"}})
	address := abAccount.String()
	for _, c := range []struct {
		document  string
		variables map[string]any
		fails     bool
	}{
		{document: `{info{version endpoints rempEnabled lastBlockTime}}`},
		{document: `{i:info{v:version __typename} blockchain{__typename}}`},
		{document: `{blockchain{account(address:"` + address + `"){info{id address balance dec:balance(format:DEC)}}}}`},
		{document: `query($a:String! $f:BigIntFormat){blockchain{account(address:$a){info{balance(format:$f)}}}}`, variables: map[string]any{"a": address, "f": "DEC"}},
		{document: `query($a:String!){blockchain{account(address:$a){info{balance}}}}`, variables: map[string]any{"a": "-1:" + address[2:]}},
		{document: `{blockchain{account(address:"` + address + `"){info{...on Node{id __typename}}}}}`},
		{document: `{blockchain{account(address:"zzz"){info{balance}}}}`, fails: true},
		{document: `{blockchain{blocks(last:3){edges{cursor node{id hash seq_no workchain_id shard gen_utime chain_order}} pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}}}`},
		{document: `{blockchain{blocks(workchain:-1){edges{node{seq_no}}}}}`},
		{document: `{blockchain{blocks(first:7,after:"` + string(blocks[50].Cursor) + `"){edges{node{...B}} pageInfo{hasNextPage}}}} fragment B on BlockchainBlock{hash ...on Node{id}}`},
		{document: `query($n:Int $b:String $w:Int){blockchain{blocks(last:$n before:$b workchain:$w){edges{cursor}}}}`, variables: map[string]any{"n": 5, "b": string(blocks[99].Cursor), "w": 0}},
		{document: `{blockchain{blocks(workchain:99,last:3){edges{cursor} pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}}}`},
		{document: `{blockchain{a:blocks(first:1,last:1){edges{cursor}} b:blocks(first:1){edges{cursor}}}}`, fails: true},
		{document: `query($no:Boolean!){blockchain{blocks(last:1){edges @skip(if:$no){cursor} pageInfo @include(if:$no){endCursor}}}}`, variables: map[string]any{"no": true}},
	} {
		ours := parse(t, query(h, c.document, c.variables))
		result := graphql.Do(graphql.Params{Schema: h.Schema(), RequestString: c.document, VariableValues: c.variables, Context: context.Background()})
		if len(ours.Errors) > 0 != c.fails || len(result.Errors) != len(ours.Errors) {
			t.Errorf("%s: errors %+v, by graphql-go %v", c.document, ours.Errors, result.Errors)
			continue
		}
		if c.fails {
			equal(t, "message", result.Errors[0].Message, ours.Errors[0].Message)
		}
		theirs, err := json.Marshal(result.Data)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		_ = json.Unmarshal(ours.Data, &a)
		_ = json.Unmarshal(theirs, &b)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s:\n      ours %s\ngraphql-go %s", c.document, ours.Data, theirs)
		}
	}
}

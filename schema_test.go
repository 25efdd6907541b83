package chaingql_test

import (
	"context"
	"encoding/json"
	"flag"
	"math/big"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

// golden compares got with a file in testdata. With -update, it writes got to the file instead.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the output differs from %s; if that is intended, run go test -update .\ngot:\n%s", path, got)
	}
}

func TestSDLMatchesGoldenFile(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	golden(t, "schema.graphql", h.SDL())
}

// referenceSchema is the schema that the API must have, without descriptions.
const referenceSchema = `
enum BigIntFormat { HEX DEC }
interface Node { id: ID! }
type Query { info: Info  blockchain: BlockchainQuery }
type Info { version: String  time: Float  latency: Float  blocksLatency: Float  lastBlockTime: Float
            endpoints: [String]  rempEnabled: Boolean }
type BlockchainQuery {
  account(address: String!): BlockchainAccountQuery
  blocks(workchain: Int, shard: String, first: Int, after: String, last: Int, before: String,
         allow_latest_inconsistent_data: Boolean, master_seq_no_range: BlockchainMasterSeqNoFilter,
         archive: Boolean): BlockchainBlocksConnection
  block(hash: String!, archive: Boolean): BlockchainBlock
  block_by_seq_no(workchain: Int!, shard: String, seq_no: Float!, archive: Boolean, thread: String): BlockchainBlock
  prev_shard_blocks(hash: String!, archive: Boolean): [BlockchainBlock]
  next_shard_blocks(hash: String!, archive: Boolean): [BlockchainBlock]
  master_seq_no_range(time_start: Int, time_end: Int, archive: Boolean): BlockchainMasterSeqNoRange }
type BlockchainMasterSeqNoRange { start: Int  end: Int }
input BlockchainMasterSeqNoFilter { start: Int  end: Int }
type BlockchainAccountQuery { info: BlockchainAccount }
type BlockchainAccount implements Node { id: ID!  address: String  balance(format: BigIntFormat): String }
type BlockchainBlocksConnection { edges: [BlockchainBlocksEdge!]!  pageInfo: PageInfo! }
type BlockchainBlocksEdge { node: BlockchainBlock!  cursor: String! }
type PageInfo { startCursor: String  endCursor: String  hasNextPage: Boolean!  hasPreviousPage: Boolean! }
type BlockchainBlock implements Node { id: ID!  hash: String  seq_no: Float  workchain_id: Int  shard: String
                                       gen_utime: Float  chain_order: String }
type Subscription { blocks(filter: BlockFilter, after: String): Block }
type Block { id: String  seq_no: Float  workchain_id: Int  shard: String  gen_utime: Float  chain_order: String
             cursor: String }
input BlockFilter { id: StringFilter  seq_no: FloatFilter  workchain_id: IntFilter  shard: StringFilter
                    gen_utime: FloatFilter  chain_order: StringFilter  OR: BlockFilter }
input IntFilter { eq: Int  ne: Int  gt: Int  lt: Int  ge: Int  le: Int  in: [Int]  notIn: [Int] }
input FloatFilter { eq: Float  ne: Float  gt: Float  lt: Float  ge: Float  le: Float  in: [Float]  notIn: [Float] }
input StringFilter { eq: String  ne: String  gt: String  lt: String  ge: String  le: String  in: [String]  
                     notIn: [String] }
`

var described = regexp.MustCompile(`(?s)""".*?"""|"(?:[^"\\]|\\.)*"`)

// tokens splits a schema into names and punctuation, without descriptions and commas.
func tokens(sdl string) []string {
	sdl = described.ReplaceAllString(sdl, " ")
	return regexp.MustCompile(`[A-Za-z_0-9]+|[{}()\[\]!:=@&|]`).FindAllString(sdl, -1)
}

func TestSchemaMatchesTheReferenceSchema(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	got, want := tokens(h.SDL()), tokens(referenceSchema)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			from := max(0, i-10)
			window := func(all []string) string { return strings.Join(all[from:min(i+10, len(all))], " ") }
			t.Fatalf("the SDL differs from the reference schema:\n got %s\nwant %s", window(got), window(want))
		}
	}
}

func TestSchemaElementsHaveDescriptions(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	schema := h.Schema()
	checked := 0
	needs := func(what, description string) {
		t.Helper()
		checked++
		if description == "" {
			t.Errorf("%s has no description", what)
		}
	}
	for name, typ := range schema.TypeMap() {
		if strings.HasPrefix(name, "__") {
			continue
		}
		needs(name, typ.Description())
		fields := graphql.FieldDefinitionMap{}
		switch typ := typ.(type) {
		case *graphql.Object:
			fields = typ.Fields()
		case *graphql.Interface:
			fields = typ.Fields()
		case *graphql.InputObject:
			for field, f := range typ.Fields() {
				needs(name+"."+field, f.Description())
			}
		case *graphql.Enum:
			for _, v := range typ.Values() {
				needs(name+"."+v.Name, v.Description)
			}
		}
		for field, f := range fields {
			needs(name+"."+field, f.Description)
			for _, arg := range f.Args {
				needs(name+"."+field+"("+arg.Name()+":)", arg.Description())
			}
		}
	}
	if checked < 100 {
		t.Errorf("only %d elements were checked", checked)
	}
}

func TestIntrospectionShowsEveryDescription(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	response := query(h, `{__schema{types{
		name description fields{name description args{name description}}
		inputFields{name description} enumValues{name description}
	}}}`, nil)
	var data struct {
		Schema struct{ Types []json.RawMessage } `json:"__schema"`
	}
	if err := json.Unmarshal(parse(t, response).Data, &data); err != nil {
		t.Fatal(err)
	}
	undescribed := regexp.MustCompile(`"name":"([^"]*)","description":(null|"")`)
	described := 0
	for _, typ := range data.Schema.Types {
		if strings.HasPrefix(string(typ), `{"name":"__`) {
			continue
		}
		described += strings.Count(string(typ), `"description"`)
		for _, m := range undescribed.FindAllStringSubmatch(string(typ), -1) {
			t.Errorf("%s has no description in the introspection result %s", m[1], typ)
		}
	}
	if described < 100 {
		t.Errorf("only %d elements were checked", described)
	}
}

func TestIntrospectionCanBeTurnedOff(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{DisableIntrospection: true})
	for _, document := range []string{
		`{__schema{types{name}}}`,
		`{__type(name:"Query"){name}}`,
		`{...F} fragment F on Query{x:__schema{types{name}}}`,
	} {
		r := parse(t, query(h, document, nil))
		equal(t, document, r.code(), "GRAPHQL_VALIDATION_FAILED")
	}
	const want = `{"data":{"__typename":"Query","blockchain":{"__typename":"BlockchainQuery"}}}`
	equal(t, "__typename", query(h, `{__typename blockchain{__typename}}`, nil), want)
}

// The test runs the same documents with graphql-go's executor on Handler.Schema. That executor shares only the
// resolvers with the Handler.
func TestResponseDataMatchesGraphqlGo(t *testing.T) {
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
		{
			document: `{blockchain{account(address:"` + address + `")` +
				`{info{id address balance dec:balance(format:DEC)}}}}`,
		},
		{
			document:  `query($a:String! $f:BigIntFormat){blockchain{account(address:$a){info{balance(format:$f)}}}}`,
			variables: map[string]any{"a": address, "f": "DEC"},
		},
		{
			document:  `query($a:String!){blockchain{account(address:$a){info{balance}}}}`,
			variables: map[string]any{"a": "-1:" + address[2:]},
		},
		{document: `{blockchain{account(address:"` + address + `"){info{...on Node{id __typename}}}}}`},
		{document: `{blockchain{account(address:"zzz"){info{balance}}}}`, fails: true},
		{
			document: `{blockchain{blocks(last:3){
				edges{cursor node{id hash seq_no workchain_id shard gen_utime chain_order}}
				pageInfo{startCursor endCursor hasNextPage hasPreviousPage}
			}}}`,
		},
		{document: `{blockchain{blocks(workchain:-1){edges{node{seq_no}}}}}`},
		{
			document: `{blockchain{blocks(first:7,after:"` + string(blocks[50].Cursor) + `")` +
				`{edges{node{...B}} pageInfo{hasNextPage}}}}
					fragment B on BlockchainBlock{hash ...on Node{id}}`,
		},
		{
			document: `query($n:Int $b:String $w:Int){blockchain{
				blocks(last:$n before:$b workchain:$w){edges{cursor}
			}}}`,
			variables: map[string]any{"n": 5, "b": string(blocks[99].Cursor), "w": 0},
		},
		{
			document: `{blockchain{blocks(workchain:99,last:3){edges{cursor}
				pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}}}`,
		},
		{
			document: `{blockchain{a:blocks(first:1,last:1){edges{cursor}} b:blocks(first:1){edges{cursor}}}}`,
			fails:    true,
		},
		{
			document: `query($no:Boolean!){blockchain{blocks(last:1){edges @skip(if:$no){cursor}
				pageInfo @include(if:$no){endCursor}}}}`,
			variables: map[string]any{"no": true},
		},
	} {
		ours := parse(t, query(h, c.document, c.variables))
		result := graphql.Do(graphql.Params{
			Schema: h.Schema(), RequestString: c.document,
			VariableValues: c.variables, Context: context.Background(),
		})
		if len(ours.Errors) > 0 != c.fails || len(result.Errors) != len(ours.Errors) {
			t.Errorf("%s: the errors are %+v, those of graphql-go are %v", c.document, ours.Errors, result.Errors)
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

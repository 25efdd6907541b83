package chaingql_test

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

var update = flag.Bool("update", false, "write what is in testdata anew")

// golden compares a text with a file of testdata, or writes it there.
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
		t.Errorf("%s is not what it was; if it should be, run go test -update .\ngot:\n%s", path, got)
	}
}

func TestSDLIsAsPublished(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	golden(t, "schema.graphql", h.SDL())
}

// agreed is the schema as it was agreed on, without descriptions.
const agreed = `
enum BigIntFormat { HEX DEC }
interface Node { id: ID! }
type Query { info: Info  blockchain: BlockchainQuery }
type Info { version: String  time: Float  latency: Float  blocksLatency: Float  lastBlockTime: Float
            endpoints: [String]  rempEnabled: Boolean }
type BlockchainQuery {
  account(address: String!): BlockchainAccountQuery
  blocks(workchain: Int, shard: String, first: Int, after: String, last: Int, before: String,
         allow_latest_inconsistent_data: Boolean): BlockchainBlocksConnection }
type BlockchainAccountQuery { info: BlockchainAccount }
type BlockchainAccount implements Node { id: ID!  address: String  balance(format: BigIntFormat): String }
type BlockchainBlocksConnection { edges: [BlockchainBlocksEdge!]!  pageInfo: PageInfo! }
type BlockchainBlocksEdge { node: BlockchainBlock!  cursor: String! }
type PageInfo { startCursor: String  endCursor: String  hasNextPage: Boolean!  hasPreviousPage: Boolean! }
type BlockchainBlock implements Node { id: ID!  hash: String  seq_no: Float  workchain_id: Int  shard: String
                                       gen_utime: Float  chain_order: String }
type Subscription { blocks(filter: BlockFilter, after: String): Block }
type Block { id: String  seq_no: Float  workchain_id: Int  shard: String  gen_utime: Float  chain_order: String }
input BlockFilter { id: StringFilter  seq_no: FloatFilter  workchain_id: IntFilter  shard: StringFilter
                    gen_utime: FloatFilter  chain_order: StringFilter  OR: BlockFilter }
input IntFilter { eq: Int  ne: Int  gt: Int  lt: Int  ge: Int  le: Int  in: [Int]  notIn: [Int] }
input FloatFilter { eq: Float  ne: Float  gt: Float  lt: Float  ge: Float  le: Float  in: [Float]  notIn: [Float] }
input StringFilter { eq: String  ne: String  gt: String  lt: String  ge: String  le: String  in: [String]  notIn: [String] }
`

var described = regexp.MustCompile(`(?s)""".*?"""|"(?:[^"\\]|\\.)*"`)

// tokens are a schema's words and signs, without descriptions and commas.
func tokens(sdl string) []string {
	sdl = described.ReplaceAllString(sdl, " ")
	return regexp.MustCompile(`[A-Za-z_0-9]+|[{}()\[\]!:=@&|]`).FindAllString(sdl, -1)
}

func TestSchemaIsWhatWasAgreedOn(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	got, want := tokens(h.SDL()), tokens(agreed)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			from := max(0, i-10)
			t.Fatalf("they differ from\n got %s\nwant %s", strings.Join(got[from:min(i+10, len(got))], " "), strings.Join(want[from:min(i+10, len(want))], " "))
		}
	}
}

func TestEverythingHasADescription(t *testing.T) {
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
		t.Errorf("only %d things were looked at", checked)
	}
}

func TestIntrospectionShowsEveryDescription(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	answer := query(h, `{__schema{types{name description fields{name description args{name description}} inputFields{name description} enumValues{name description}}}}`, nil)
	var data struct {
		Schema struct{ Types []json.RawMessage } `json:"__schema"`
	}
	if err := json.Unmarshal(parse(t, answer).Data, &data); err != nil {
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
			t.Errorf("%s has no description, in %s", m[1], typ)
		}
	}
	if described < 100 {
		t.Errorf("only %d things were looked at", described)
	}
}

func TestIntrospectionCanBeTurnedOff(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{DisableIntrospection: true})
	for _, document := range []string{`{__schema{types{name}}}`, `{__type(name:"Query"){name}}`, `{...F} fragment F on Query{x:__schema{types{name}}}`} {
		r := parse(t, query(h, document, nil))
		equal(t, document, r.code(), "GRAPHQL_VALIDATION_FAILED")
	}
	equal(t, "__typename", query(h, `{__typename blockchain{__typename}}`, nil), `{"data":{"__typename":"Query","blockchain":{"__typename":"BlockchainQuery"}}}`)
}

package chaingql

import (
	"slices"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/plan"
)

// schemaTable declares every type, field and argument of the API once. graphql-go's schema, the SDL, introspection
// and the compiled plans are made from it.
func schemaTable(r *resolvers) []plan.Type {
	return []plan.Type{
		{Kind: ast.Enum, Name: "BigIntFormat", Desc: "How a number that may be larger than 64 bits is written.",
			Values: []plan.Value{
				{Name: "HEX", Desc: `Hexadecimal with a leading 0x, such as "0x1a".`},
				{Name: "DEC", Desc: `Decimal, such as "26".`},
			}},
		{Kind: ast.Interface, Name: "Node", Desc: "An object with an id that is unique in the chain.",
			Fields: []plan.Field{
				{Name: "id", Type: "ID!", Desc: "The object's id, with its kind in front."},
			}},
		{Kind: ast.Object, Name: "Query", Desc: "What can be asked once.", Fields: []plan.Field{
			{Name: "info", Type: "Info",
				Desc:    "The service itself: its version, its clock and how fresh its blocks are.",
				Resolve: r.info, Cost: infoCost},
			{Name: "blockchain", Type: "BlockchainQuery", Desc: "The chain: its accounts and its blocks.", Same: true},
		}},
		infoType,
		{Kind: ast.Object, Name: "BlockchainQuery", Desc: "Accounts and blocks of the chain.", Fields: []plan.Field{
			{Name: "account", Type: "BlockchainAccountQuery", Desc: "One account.",
				Resolve: r.account, Depends: onNothing, Batch: "balance", AtOnce: r.batcher != nil, Args: []plan.Arg{
					{Name: "address", Type: "String!",
						Desc: "The account's address: raw (workchain, colon, 64 hex digits) or in the user-friendly " +
							"form of 48 characters."},
				}},
			{Name: "blocks", Type: "BlockchainBlocksConnection",
				Desc: "A page of at most 50 blocks, ascending by cursor. Without first and last: the first 50 where " +
					"after is given, else the last 50.",
				Resolve: r.blocks, Cost: blocksCost, Depends: r.onPage, Args: []plan.Arg{
					{Name: "workchain", Type: "Int", Desc: "Blocks of this workchain only; -1 is the masterchain."},
					{Name: "shard", Type: "String", Desc: "Blocks of this shard only: 16 hex digits, compared whole."},
					{Name: "first", Type: "Int", Desc: "This many blocks from the low end."},
					{Name: "after", Type: "String", Desc: "Blocks past this cursor; goes with first."},
					{Name: "last", Type: "Int", Desc: "This many blocks from the high end."},
					{Name: "before", Type: "String", Desc: "Blocks short of this cursor; goes with last."},
					{Name: "allow_latest_inconsistent_data", Type: "Boolean",
						Desc: "Accepted for older clients, and has no effect: every block served is final."},
					{Name: "master_seq_no_range", Type: "BlockchainMasterSeqNoFilter",
						Desc: "Blocks of these masterchain blocks only, and of the shards that they commit."},
					archiveArg,
				}},
			{Name: "block", Type: "BlockchainBlock", Desc: "The block with this hash; null if it is not stored.",
				Resolve: r.block, Cost: lookupCost, Depends: onBlock, Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "block_by_seq_no", Type: "BlockchainBlock",
				Desc:    "The block with this number in this shard; null if it is not stored.",
				Resolve: r.blockBySeqNo, Cost: lookupCost, Depends: r.onBlockNumber, Args: []plan.Arg{
					{Name: "workchain", Type: "Int!", Desc: "The block's workchain; -1 is the masterchain."},
					{Name: "shard", Type: "String",
						Desc: "The block's shard: 16 hex digits, compared whole. Required, unless thread is set."},
					{Name: "seq_no", Type: "Float!", Desc: "The block's number in its shard."},
					archiveArg,
					{Name: "thread", Type: "String", Desc: "The former name of shard."},
				}},
			{Name: "prev_shard_blocks", Type: "[BlockchainBlock]",
				Desc: "The block before this one in its shard; both blocks if this one merged two shards. Empty if " +
					"one of them, or the block itself, is not stored.",
				Resolve: r.prevShardBlocks, Cost: neighborCost, Depends: onBlock,
				Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "next_shard_blocks", Type: "[BlockchainBlock]",
				Desc: "The block after this one in its shard; both blocks if the shard was split after this one. " +
					"Empty if one of them, or the block itself, is not stored: after the newest block, for example.",
				Resolve: r.nextShardBlocks, Cost: neighborCost, Depends: onBlock,
				Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "master_seq_no_range", Type: "BlockchainMasterSeqNoRange",
				Desc: "The range of masterchain blocks for blocks(master_seq_no_range:) that has all blocks " +
					"generated between two times, in seconds since 1970.",
				Resolve: r.masterSeqNoRange, Cost: r.masterRangeCost, Depends: onAllBlocks, Args: []plan.Arg{
					{Name: "time_start", Type: "Int", Desc: "The range has blocks generated at this time or later."},
					{Name: "time_end", Type: "Int", Desc: "The range has blocks generated before this time."},
					archiveArg,
				}},
		}},
		{Kind: ast.Object, Name: "BlockchainMasterSeqNoRange",
			Desc: "A range of masterchain blocks. A bound for which no time is given is null.",
			Fields: []plan.Field{
				{Name: "start", Type: "Int",
					Desc: "The first masterchain block generated at time_start or later, or the number that the next " +
						"one will have. Null if earlier blocks are not stored.",
					Append: func(dst []byte, src any) []byte { return appendNumber(dst, src.(*masterRange).start) }},
				{Name: "end", Type: "Int",
					Desc: "The first masterchain block generated at time_end or later of which all shard blocks were " +
						"generated at time_end or later, too. It is not in the range. Null if there is none yet.",
					Append: func(dst []byte, src any) []byte { return appendNumber(dst, src.(*masterRange).end) }},
			}},
		{Kind: ast.InputObject, Name: "BlockchainMasterSeqNoFilter", Desc: "A range of masterchain blocks.",
			Fields: []plan.Field{
				{Name: "start", Type: "Int", Desc: "The first masterchain block; the oldest one stored where absent."},
				{Name: "end", Type: "Int", Desc: "The masterchain block after the last one; no end where absent."},
			}},
		{Kind: ast.Object, Name: "BlockchainAccountQuery", Desc: "What is known of one account.", Fields: []plan.Field{
			{Name: "info", Type: "BlockchainAccount", Desc: "The account's state.", Same: true},
		}},
		{Kind: ast.Object, Name: "BlockchainAccount",
			Desc:       "The state of an account. One that the chain has never seen has a balance of zero.",
			Interfaces: []string{"Node"},
			Is:         func(v any) bool { _, ok := v.(*account); return ok },
			Fields: []plan.Field{
				{Name: "id", Type: "ID!", Desc: `"account/" and the address.`,
					Append: func(dst []byte, src any) []byte {
						dst = append(dst, `"account/`...)
						return append(src.(*account).address.append(dst), '"')
					}},
				{Name: "address", Type: "String", Desc: "The address in its raw, lower-case form.",
					Append: func(dst []byte, src any) []byte {
						return append(src.(*account).address.append(append(dst, '"')), '"')
					}},
				{Name: "balance", Type: "String", Desc: "The balance in nano-units.",
					Resolve: r.balance, Depends: onMasterchain, Args: []plan.Arg{
						{Name: "format", Type: "BigIntFormat", Desc: "How it is written; HEX where absent."},
					}},
			}},
		{Kind: ast.Object, Name: "BlockchainBlocksConnection", Desc: "A page of blocks.", Fields: []plan.Field{
			{Name: "edges", Type: "[BlockchainBlocksEdge!]!", Desc: "The blocks with their cursors, ascending.",
				Get: func(src any) any { return (*edges)(src.(*page)) }},
			{Name: "pageInfo", Type: "PageInfo!", Desc: "Where the page ends and whether there is more.", Same: true},
		}},
		{Kind: ast.Object, Name: "BlockchainBlocksEdge", Desc: "A block in a page.", Fields: []plan.Field{
			{Name: "node", Type: "BlockchainBlock!", Desc: "The block.", Same: true},
			preparedFields[len(preparedFields)-1],
		}},
		pageInfoType,
		{Kind: ast.Object, Name: "BlockchainBlock", Desc: "A block.", Interfaces: []string{"Node"},
			Is: isBlock, Fields: slices.Clone(preparedFields[:len(preparedFields)-1])},
		{Kind: ast.Object, Name: "Subscription", Desc: "What can be followed.", Fields: []plan.Field{
			{Name: "blocks", Type: "Block",
				Desc: "Each new block that the filter matches, ascending by cursor; there is no first value.",
				Same: true, Args: []plan.Arg{
					{Name: "filter", Type: "BlockFilter", Desc: "Which blocks; all where absent."},
					{Name: "after", Type: "String",
						Desc: "Start behind this cursor (or a block's chain_order) instead of now; an empty one is " +
							"before the oldest block kept."},
				}},
		}},
		{Kind: ast.Object, Name: "Block", Desc: "A block as subscriptions give it.", Fields: slices.Concat([]plan.Field{
			{Name: "id", Type: "String", Desc: "The block's hash: 64 lower-case hex digits.", Append: appendHash},
		}, blockFields, []plan.Field{
			{Name: "cursor", Type: "String", Desc: "The cursor from which to resume after this block.",
				Append: appendCursor},
		})},
		{Kind: ast.InputObject, Name: "BlockFilter",
			Desc: "Which blocks to give. A block must satisfy every field that is set, or the alternative in OR.",
			Fields: []plan.Field{
				{Name: "id", Type: "StringFilter", Desc: "The block's hash, hex digits of either case."},
				{Name: "seq_no", Type: "FloatFilter", Desc: "The block's number in its shard."},
				{Name: "workchain_id", Type: "IntFilter", Desc: "The block's workchain; -1 is the masterchain."},
				{Name: "shard", Type: "StringFilter", Desc: "The block's shard: 16 hex digits of either case."},
				{Name: "gen_utime", Type: "FloatFilter", Desc: "When the block was generated, in seconds since 1970."},
				{Name: "chain_order", Type: "StringFilter", Desc: "The block's place in the order of all blocks."},
				{Name: "OR", Type: "BlockFilter",
					Desc: "An alternative to all the fields above. One without a field matches everything."},
			}},
		filterType("Int"), filterType("Float"), filterType("String"),
	}
}

var (
	hashArg    = plan.Arg{Name: "hash", Type: "String!", Desc: "The block's hash: 64 hex digits of either case."}
	archiveArg = plan.Arg{Name: "archive", Type: "Boolean", Desc: "Accepted for clients of other services; no effect."}
)

var infoType = plan.Type{Kind: ast.Object, Name: "Info", Desc: "The service itself. Times are in milliseconds.",
	Fields: []plan.Field{
		{Name: "version", Type: "String", Desc: "The version of the library that serves, as dotted integers.",
			Append: func(dst []byte, _ any) []byte {
				return plan.AppendString(dst, Version)
			}},
		{Name: "time", Type: "Float",
			Desc: "The service's clock, since 1970.", Append: func(dst []byte, src any) []byte {
				return strconv.AppendInt(dst, src.(*info).now.UnixMilli(), 10)
			}},
		{Name: "latency", Type: "Float",
			Desc:   "How much later than usual the next block is; 0 while blocks come at their usual pace.",
			Append: appendLatency},
		{Name: "blocksLatency", Type: "Float", Desc: "The same as latency.", Append: appendLatency},
		{Name: "lastBlockTime", Type: "Float",
			Desc: "When the newest masterchain block was generated, since 1970; null where there is none.",
			Append: func(dst []byte, src any) []byte {
				last := src.(*info).lastBlock
				if last.IsZero() {
					return append(dst, "null"...)
				}
				return strconv.AppendInt(dst, last.UnixMilli(), 10)
			}},
		{Name: "endpoints", Type: "[String]", Desc: "Where the service can be reached.",
			Get: func(src any) any { return src.(*info).endpoints }},
		{Name: "rempEnabled", Type: "Boolean",
			Desc: "Whether the service reports on the progress of external messages; it does not.",
			Append: func(dst []byte, _ any) []byte {
				return append(dst, "false"...)
			}},
	}}

func appendLatency(dst []byte, src any) []byte {
	return strconv.AppendInt(dst, src.(*info).latency.Milliseconds(), 10)
}

var pageInfoType = plan.Type{Kind: ast.Object, Name: "PageInfo", Desc: "Where a page ends and whether there is more.",
	Fields: []plan.Field{
		{Name: "startCursor", Type: "String", Desc: "The cursor of the first edge; empty for an empty page.",
			Append: func(dst []byte, src any) []byte {
				p := src.(*page)
				if p.blocks.Len() == 0 {
					return append(dst, `""`...)
				}
				return appendSuffixed(dst, p.blocks.At(0), p.suffix)
			}},
		{Name: "endCursor", Type: "String", Desc: "The cursor of the last edge; empty for an empty page.",
			Append: func(dst []byte, src any) []byte {
				p := src.(*page)
				if p.blocks.Len() == 0 {
					return append(dst, `""`...)
				}
				return appendSuffixed(dst, p.blocks.At(p.blocks.Len()-1), p.suffix)
			}},
		{Name: "hasNextPage", Type: "Boolean!",
			Desc: "Whether more blocks follow; speaks only for pages asked for with first.",
			Append: func(dst []byte, src any) []byte {
				return strconv.AppendBool(dst, src.(*page).hasNext)
			}},
		{Name: "hasPreviousPage", Type: "Boolean!",
			Desc: "Whether more blocks precede; speaks only for pages asked for with last.",
			Append: func(dst []byte, src any) []byte {
				return strconv.AppendBool(dst, src.(*page).hasPrevious)
			}},
	}}

// blockFields are the fields of a block, in queries and subscriptions.
var blockFields = []plan.Field{
	{Name: "seq_no", Type: "Float", Desc: "The block's number in its shard. It is not unique in a workchain.",
		Append: func(dst []byte, src any) []byte {
			return strconv.AppendUint(dst, uint64(blockOf(src).SeqNo), 10)
		}},
	{Name: "workchain_id", Type: "Int", Desc: "The block's workchain; -1 is the masterchain.",
		Append: func(dst []byte, src any) []byte {
			return strconv.AppendInt(dst, int64(blockOf(src).Workchain), 10)
		}},
	{Name: "shard", Type: "String", Desc: "The block's shard: 16 lower-case hex digits.",
		Append: func(dst []byte, src any) []byte {
			return append(appendShard(append(dst, '"'), blockOf(src).Shard), '"')
		}},
	{Name: "gen_utime", Type: "Float", Desc: "When the block was generated, in seconds since 1970.",
		Append: func(dst []byte, src any) []byte {
			return strconv.AppendInt(dst, blockOf(src).Time.Unix(), 10)
		}},
	{Name: "chain_order", Type: "String", Desc: "The block's place in the order of all blocks.",
		Append: appendOrder},
}

func appendHash(dst []byte, src any) []byte {
	return append(blockOf(src).Hash.append(append(dst, '"')), '"')
}

func appendOrder(dst []byte, src any) []byte {
	return plan.AppendString(dst, string(blockOf(src).Cursor))
}

func appendCursor(dst []byte, src any) []byte {
	switch b := src.(type) {
	case *suffixedBlock:
		return appendSuffixed(dst, b.Block, b.suffix)
	case *preparedBlock:
		return appendSuffixed(dst, &b.Block, b.suffix)
	}
	return appendOrder(dst, src)
}

// appendSuffixed appends the cursor of b with the suffix of its chain, which has no characters that JSON escapes.
func appendSuffixed(dst []byte, b *Block, suffix string) []byte {
	dst = plan.AppendString(dst, string(b.Cursor))
	return append(append(dst[:len(dst)-1], suffix...), '"')
}

// filterType declares the input type that filters values of a scalar type.
func filterType(scalar string) plan.Type {
	list := "[" + scalar + "]"
	return plan.Type{Kind: ast.InputObject, Name: scalar + "Filter",
		Desc: "Conditions on a value; all that are set must hold.",
		Fields: []plan.Field{
			{Name: "eq", Type: scalar, Desc: "Equal to; null matches nothing."},
			{Name: "ne", Type: scalar, Desc: "Not equal to; null matches everything."},
			{Name: "gt", Type: scalar, Desc: "Greater than."},
			{Name: "lt", Type: scalar, Desc: "Less than."},
			{Name: "ge", Type: scalar, Desc: "Greater than or equal to."},
			{Name: "le", Type: scalar, Desc: "Less than or equal to."},
			{Name: "in", Type: list, Desc: "One of; an empty list matches nothing."},
			{Name: "notIn", Type: list, Desc: "None of; an empty list matches everything."},
		}}
}

// The costs of the built-in fields. A page from the window of recent blocks costs as much as one from the Backend, so
// that the same query is either always or never refused. The cost of a balance belongs to the field account: see
// [plan.Field].

func infoCost(plan.Args) plan.Cost { return plan.Cost{Calls: 1, Blocks: paceBlocks} }

func blocksCost(args plan.Args) plan.Cost {
	if args == nil {
		return plan.Cost{Calls: 1 + rangeCalls, Blocks: pageSize + rangeCalls}
	}
	q, err := pageQueryOf(args)
	if err != nil {
		return plan.Cost{} // the field fails without a Backend call
	}
	cost := plan.Cost{Calls: 1, Blocks: max(q.first, q.last)}
	if args[argMasterRange] != nil {
		cost.Calls, cost.Blocks = cost.Calls+rangeCalls, cost.Blocks+rangeCalls
	}
	return cost
}

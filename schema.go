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
		{Kind: ast.Enum, Name: "BigIntFormat", Desc: "The notation of an integer that may exceed 64 bits.",
			Values: []plan.Value{
				{Name: "HEX", Desc: `Hexadecimal with the prefix 0x, such as "0x1a".`},
				{Name: "DEC", Desc: `Decimal, such as "26".`},
			}},
		{Kind: ast.Interface, Name: "Node", Desc: "An object with a unique id.",
			Fields: []plan.Field{
				{Name: "id", Type: "ID!",
					Desc: `The unique id of the object, prefixed with its kind, such as "block/".`},
			}},
		{Kind: ast.Object, Name: "Query", Desc: "The root of all queries.", Fields: []plan.Field{
			{Name: "info", Type: "Info",
				Desc:    "Information about the service, such as its version and latency.",
				Resolve: r.info, Cost: infoCost},
			{Name: "blockchain", Type: "BlockchainQuery", Desc: "The accounts and blocks of the chain.", Same: true},
		}},
		infoType,
		{Kind: ast.Object, Name: "BlockchainQuery", Desc: "Queries for accounts and blocks.", Fields: []plan.Field{
			{Name: "account", Type: "BlockchainAccountQuery", Desc: "The account with the given address.",
				Resolve: r.account, ReadsText: true, Depends: onNothing, Batch: "balance",
				AtOnce: r.batcher != nil, Args: []plan.Arg{
					{Name: "address", Type: "String!",
						Desc: "The address of the account, in the raw form (workchain, colon, 64 hex digits) or in " +
							"the user-friendly form (48 characters)."},
				}},
			{Name: "blocks", Type: "BlockchainBlocksConnection",
				Desc: "A page of at most 50 blocks, in ascending order of their cursors. If neither first nor last " +
					"is set, the page has the first 50 blocks if after is set, and the last 50 otherwise.",
				Resolve: r.blocks, Cost: blocksCost, Depends: r.onPage, Args: []plan.Arg{
					{Name: "workchain", Type: "Int",
						Desc: "Returns only blocks of this workchain. The masterchain is -1."},
					{Name: "shard", Type: "String",
						Desc: "Returns only blocks of exactly this shard, given as 16 hex digits."},
					{Name: "first", Type: "Int",
						Desc: "Returns the first n blocks. It cannot be combined with last or before."},
					{Name: "after", Type: "String",
						Desc: "Returns blocks after this cursor. It cannot be combined with last."},
					{Name: "last", Type: "Int",
						Desc: "Returns the last n blocks. It cannot be combined with first or after."},
					{Name: "before", Type: "String",
						Desc: "Returns blocks before this cursor. It cannot be combined with first."},
					{Name: "allow_latest_inconsistent_data", Type: "Boolean",
						Desc: "Accepted for compatibility. It has no effect, because all blocks are final."},
					{Name: "master_seq_no_range", Type: "BlockchainMasterSeqNoFilter",
						Desc: "Returns only these masterchain blocks and the shard blocks that they commit."},
					archiveArg,
				}},
			{Name: "block", Type: "BlockchainBlock",
				Desc:    "The block with the given hash, or null if it is not stored.",
				Resolve: r.block, Cost: lookupCost, Depends: onBlock, Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "block_by_seq_no", Type: "BlockchainBlock",
				Desc:    "The block with the given sequence number in its shard, or null if it is not stored.",
				Resolve: r.blockBySeqNo, Cost: lookupCost, Depends: r.onBlockNumber, Args: []plan.Arg{
					{Name: "workchain", Type: "Int!", Desc: "The workchain of the block. The masterchain is -1."},
					{Name: "shard", Type: "String",
						Desc: "The shard of the block, as 16 hex digits. Required unless thread is set."},
					{Name: "seq_no", Type: "Float!", Desc: "The sequence number of the block in its shard."},
					archiveArg,
					{Name: "thread", Type: "String", Desc: "The former name of shard, for older clients."},
				}},
			{Name: "prev_shard_blocks", Type: "[BlockchainBlock]",
				Desc: "The predecessor of the block in its shard, or both predecessors if the block merged two " +
					"shards. The list is empty if the block or one of its predecessors is not stored.",
				Resolve: r.neighbors(r.predecessors), Cost: neighborCost, Depends: onBlock,
				Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "next_shard_blocks", Type: "[BlockchainBlock]",
				Desc: "The successor of the block in its shard, or both successors if the shard was split after the " +
					"block. The list is empty if the block or one of its successors is not stored, for example after " +
					"the newest block.",
				Resolve: r.neighbors(r.successors), Cost: neighborCost, Depends: onBlock,
				Args: []plan.Arg{hashArg, archiveArg}},
			{Name: "master_seq_no_range", Type: "BlockchainMasterSeqNoRange",
				Desc: "The range of masterchain blocks that covers all blocks generated between two times. Pass it " +
					"to the field blocks as master_seq_no_range.",
				Resolve: r.masterSeqNoRange, Cost: r.masterRangeCost, Depends: onAllBlocks, Args: []plan.Arg{
					{Name: "time_start", Type: "Int",
						Desc: "The beginning of the time range, as Unix time in seconds. It is in the range."},
					{Name: "time_end", Type: "Int",
						Desc: "The end of the time range, as Unix time in seconds. It is not in the range."},
					archiveArg,
				}},
		}},
		{Kind: ast.Object, Name: "BlockchainMasterSeqNoRange",
			Desc: "A range of masterchain blocks. A bound is null if the query did not set its time.",
			Fields: []plan.Field{
				{Name: "start", Type: "Int",
					Desc: "The sequence number of the first masterchain block that was generated at or after " +
						"time_start. If there is none yet, it is the number of the next masterchain block. Null if " +
						"earlier blocks are not stored.",
					Append: func(dst []byte, src any) []byte { return appendNumber(dst, src.(*masterRange).start) }},
				{Name: "end", Type: "Int",
					Desc: "The sequence number of the first masterchain block that, like all of its shard blocks, " +
						"was generated at or after time_end. It is not in the range. Null if there is none yet.",
					Append: func(dst []byte, src any) []byte { return appendNumber(dst, src.(*masterRange).end) }},
			}},
		{Kind: ast.InputObject, Name: "BlockchainMasterSeqNoFilter", Desc: "A range of masterchain blocks.",
			Fields: []plan.Field{
				{Name: "start", Type: "Int",
					Desc: "The sequence number of the first masterchain block in the range. Default: the oldest " +
						"stored block."},
				{Name: "end", Type: "Int",
					Desc: "The sequence number of the first masterchain block after the range. Default: no limit."},
			}},
		{Kind: ast.Object, Name: "BlockchainAccountQuery", Desc: "Queries for one account.", Fields: []plan.Field{
			{Name: "info", Type: "BlockchainAccount", Desc: "The state of the account.", Same: true},
		}},
		{Kind: ast.Object, Name: "BlockchainAccount",
			Desc:       "The state of an account. If the account has never been on the chain, its balance is zero.",
			Interfaces: []string{"Node"},
			Is:         func(v any) bool { _, ok := v.(*account); return ok },
			Fields: []plan.Field{
				{Name: "id", Type: "ID!", Desc: `The unique id: "account/" followed by the address.`,
					Append: func(dst []byte, src any) []byte {
						dst = append(dst, `"account/`...)
						return append(src.(*account).address.append(dst), '"')
					}},
				{Name: "address", Type: "String", Desc: "The address in the raw form, in lower case.",
					Append: func(dst []byte, src any) []byte {
						return append(src.(*account).address.append(append(dst, '"')), '"')
					}},
				{Name: "balance", Type: "String", Desc: "The balance in nano-units.",
					Resolve: r.balance, Depends: onMasterchain, Args: []plan.Arg{
						{Name: "format", Type: "BigIntFormat", Desc: "The notation of the balance. Default: HEX."},
					}},
			}},
		{Kind: ast.Object, Name: "BlockchainBlocksConnection", Desc: "A page of blocks.", Fields: []plan.Field{
			{Name: "edges", Type: "[BlockchainBlocksEdge!]!",
				Desc: "The blocks and their cursors, in ascending order.",
				Get:  func(src any) any { return (*edges)(src.(*page)) }},
			{Name: "pageInfo", Type: "PageInfo!", Desc: "Information for pagination.", Same: true},
		}},
		{Kind: ast.Object, Name: "BlockchainBlocksEdge", Desc: "A block and its cursor.", Fields: []plan.Field{
			{Name: "node", Type: "BlockchainBlock!", Desc: "The block.", Same: true},
			preparedFields[len(preparedFields)-1],
		}},
		pageInfoType,
		{Kind: ast.Object, Name: "BlockchainBlock", Desc: "A block of the chain.", Interfaces: []string{"Node"},
			Is: isBlock, Fields: slices.Clone(preparedFields[:len(preparedFields)-1])},
		{Kind: ast.Object, Name: "Subscription", Desc: "The root of all subscriptions.", Fields: []plan.Field{
			{Name: "blocks", Type: "Block",
				Desc: "New blocks that match the filter, in ascending order of cursor. There is no initial event.",
				Same: true, Args: []plan.Arg{
					{Name: "filter", Type: "BlockFilter", Desc: "The blocks to deliver. Default: all blocks."},
					{Name: "after", Type: "String",
						Desc: "Starts after this cursor or chain_order instead of with the next new block. If it is " +
							"empty, the subscription starts with the oldest stored block."},
				}},
		}},
		{Kind: ast.Object, Name: "Block",
			Desc: "A block delivered by a subscription.", Fields: slices.Concat([]plan.Field{
				{Name: "id", Type: "String",
					Desc: "The hash of the block, as 64 hex digits in lower case.", Append: appendHash},
			}, blockFields, []plan.Field{
				{Name: "cursor", Type: "String",
					Desc:   "The cursor of the block. To resume after this block, pass it as after.",
					Append: appendCursor},
			})},
		{Kind: ast.InputObject, Name: "BlockFilter",
			Desc: "Conditions on a block. A block matches if it satisfies all fields that are set, or the " +
				"alternative in OR.",
			Fields: []plan.Field{
				{Name: "id", Type: "StringFilter",
					Desc: "The hash of the block, as hex digits in upper or lower case."},
				{Name: "seq_no", Type: "FloatFilter", Desc: "The sequence number of the block in its shard."},
				{Name: "workchain_id", Type: "IntFilter", Desc: "The workchain of the block. The masterchain is -1."},
				{Name: "shard", Type: "StringFilter",
					Desc: "The shard of the block, as 16 hex digits in upper or lower case."},
				{Name: "gen_utime", Type: "FloatFilter",
					Desc: "The time at which the block was generated, as Unix time in seconds."},
				{Name: "chain_order", Type: "StringFilter",
					Desc: "The position of the block in the order of all blocks."},
				{Name: "OR", Type: "BlockFilter",
					Desc: "An alternative to the conditions above. A filter without fields matches every block."},
			}},
		filterType("Int"), filterType("Float"), filterType("String"),
	}
}

var (
	hashArg = plan.Arg{Name: "hash", Type: "String!",
		Desc: "The hash of the block, as 64 hex digits in upper or lower case."}
	archiveArg = plan.Arg{Name: "archive", Type: "Boolean", Desc: "Accepted for compatibility. It has no effect."}
)

var infoType = plan.Type{Kind: ast.Object, Name: "Info", Desc: "Information about the service.",
	Fields: []plan.Field{
		{Name: "version", Type: "String", Desc: "The version of the server software, as dotted integers.",
			Append: func(dst []byte, _ any) []byte {
				return plan.AppendString(dst, Version)
			}},
		{Name: "time", Type: "Float", Desc: "The current time of the service, as Unix time in milliseconds.",
			Append: func(dst []byte, src any) []byte {
				return strconv.AppendInt(dst, src.(*info).now.UnixMilli(), 10)
			}},
		{Name: "latency", Type: "Float",
			Desc: "The time in milliseconds by which the next block is overdue. It is 0 if blocks arrive at their " +
				"usual rate.",
			Append: appendLatency},
		{Name: "blocksLatency", Type: "Float", Desc: "The same value as latency.", Append: appendLatency},
		{Name: "lastBlockTime", Type: "Float",
			Desc: "The time at which the newest masterchain block was generated, as Unix time in milliseconds. Null " +
				"if there is no such block.",
			Append: func(dst []byte, src any) []byte {
				last := src.(*info).lastBlock
				if last.IsZero() {
					return append(dst, "null"...)
				}
				return strconv.AppendInt(dst, last.UnixMilli(), 10)
			}},
		{Name: "endpoints", Type: "[String]", Desc: "The addresses at which the service is available.",
			Get: func(src any) any { return src.(*info).endpoints }},
		{Name: "rempEnabled", Type: "Boolean",
			Desc: "Always false: the service does not report the progress of external messages.",
			Append: func(dst []byte, _ any) []byte {
				return append(dst, "false"...)
			}},
	}}

func appendLatency(dst []byte, src any) []byte {
	return strconv.AppendInt(dst, src.(*info).latency.Milliseconds(), 10)
}

var pageInfoType = plan.Type{Kind: ast.Object, Name: "PageInfo", Desc: "Information for pagination.",
	Fields: []plan.Field{
		{Name: "startCursor", Type: "String", Desc: "The cursor of the first edge. Empty if the page is empty.",
			Append: func(dst []byte, src any) []byte { return src.(*page).appendCursor(dst, 0) }},
		{Name: "endCursor", Type: "String", Desc: "The cursor of the last edge. Empty if the page is empty.",
			Append: func(dst []byte, src any) []byte {
				p := src.(*page)
				return p.appendCursor(dst, p.blocks.Len()-1)
			}},
		{Name: "hasNextPage", Type: "Boolean!",
			Desc: "When paginating forwards: whether there are more blocks. Otherwise false.",
			Append: func(dst []byte, src any) []byte {
				return strconv.AppendBool(dst, src.(*page).hasNext)
			}},
		{Name: "hasPreviousPage", Type: "Boolean!",
			Desc: "When paginating backwards: whether there are more blocks. Otherwise false.",
			Append: func(dst []byte, src any) []byte {
				return strconv.AppendBool(dst, src.(*page).hasPrevious)
			}},
	}}

// appendCursor appends the cursor of the block with index i, or an empty string if the page is empty.
func (p *page) appendCursor(dst []byte, i int) []byte {
	if p.blocks.Len() == 0 {
		return append(dst, `""`...)
	}
	return appendSuffixed(dst, p.blocks.At(i), p.suffix)
}

// blockFields are the fields of a block, in queries and subscriptions.
var blockFields = []plan.Field{
	{Name: "seq_no", Type: "Float",
		Desc: "The sequence number of the block in its shard. Blocks of different shards may have the same number.",
		Append: func(dst []byte, src any) []byte {
			return plan.AppendUint(dst, uint64(blockOf(src).SeqNo))
		}},
	{Name: "workchain_id", Type: "Int", Desc: "The workchain of the block. The masterchain is -1.",
		Append: func(dst []byte, src any) []byte {
			return plan.AppendInt(dst, int64(blockOf(src).Workchain))
		}},
	{Name: "shard", Type: "String", Desc: "The shard of the block, as 16 hex digits in lower case.",
		Append: func(dst []byte, src any) []byte {
			return append(appendShard(append(dst, '"'), blockOf(src).Shard), '"')
		}},
	{Name: "gen_utime", Type: "Float", Desc: "The time at which the block was generated, as Unix time in seconds.",
		Append: func(dst []byte, src any) []byte {
			return plan.AppendInt(dst, blockOf(src).Time.Unix())
		}},
	{Name: "chain_order", Type: "String", Desc: "The position of the block in the order of all blocks.",
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
		Desc: "Conditions on a value. The value must satisfy all that are set.",
		Fields: []plan.Field{
			{Name: "eq", Type: scalar, Desc: "Equal to this value. Null matches nothing."},
			{Name: "ne", Type: scalar, Desc: "Not equal to this value. Null matches everything."},
			{Name: "gt", Type: scalar, Desc: "Greater than this value."},
			{Name: "lt", Type: scalar, Desc: "Less than this value."},
			{Name: "ge", Type: scalar, Desc: "Greater than or equal to this value."},
			{Name: "le", Type: scalar, Desc: "Less than or equal to this value."},
			{Name: "in", Type: list, Desc: "Equal to one of these values. An empty list matches nothing."},
			{Name: "notIn", Type: list, Desc: "Equal to none of these values. An empty list matches everything."},
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

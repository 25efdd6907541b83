// Resolvers for graphql-js that implement the API as docs/protocol.md describes it.
import { parseAddress } from './chain.js'

const pageSize = 50

function refuse(message) {
  throw new Error(message)
}

const resolvers = {
  Query: { info: (_, args, chain) => info(chain), blockchain: () => ({}) },
  BlockchainQuery: {
    account: (_, { address }, chain) => account(chain, parseAddress(address) ?? refuse('Invalid account address')),
    blocks: (_, args, chain) => page(chain, args),
    block: (_, { hash }, chain) => block(chain, isHex(hash, 64) ? (b) => b.hash === hash.toLowerCase() : refuse('hash')),
    block_by_seq_no: (_, { workchain, seq_no, shard, thread }, chain) => {
      const of = shard || thread || refuse('no shard')
      if (!isHex(of, 16)) refuse('shard')
      return block(chain, (b) => b.workchain_id === workchain && b.shard === of.toLowerCase() && b.seq_no === seq_no)
    },
    master_seq_no_range: (_, args, chain) => masterRange(chain, args),
  },
  Subscription: { blocks: undefined },
}

// Arguments of blocks that have an effect, of those that the reference knows.
const filters = ['workchain', 'shard', 'first', 'after', 'last', 'before', 'filter', 'archive']

// resolves reports whether the reference resolves a field and its argument. Tests of the library cover the others.
export function resolves(type, field, arg) {
  const fields = resolvers[type.name]
  return !fields || (field.name in fields && (field.name !== 'blocks' || !arg || filters.includes(arg.name)))
}

// attach adds the resolvers to a schema that was built from introspection.
export function attach(schema, chain) {
  for (const [type, fields] of Object.entries(resolvers)) {
    for (const [name, resolve] of Object.entries(fields)) {
      schema.getType(type).getFields()[name].resolve = resolve && ((source, args) => resolve(source, args, chain))
    }
  }
  schema.getType('Subscription').getFields().blocks.subscribe = (_, args) => stream(args)
  schema.getType('Node').resolveType = (node) => node.type
}

const isHex = (text, digits) => text.length === digits && /^[0-9a-f]*$/i.test(text)

function block({ blocks }, matches) {
  const found = blocks.find(matches)
  return found && { type: 'BlockchainBlock', ...found }
}

function masterRange({ blocks }, { time_start: start, time_end: end }) {
  const given = (v) => v !== undefined && v !== null
  if (given(start) && given(end) && start > end) refuse('the wrong order')
  const masters = blocks.filter((b) => b.workchain_id === -1)
  const from = masters.find((b) => b.gen_utime >= start)
  const committed = (i) => blocks.filter((b) => b.chain_order <= masters[i].chain_order && !(b.chain_order <= masters[i - 1]?.chain_order))
  return {
    start: !given(start) || (from === masters[0] && from.seq_no !== 1) ? null : from?.seq_no ?? masters.at(-1).seq_no + 1,
    end: given(end) ? masters.find((_, i) => committed(i).every((b) => b.gen_utime >= end))?.seq_no ?? null : null,
  }
}

function info({ info }) {
  return { ...info, rempEnabled: false }
}

function account({ balances }, address) {
  const balance = ({ format }) => {
    const nano = balances.get(address) ?? 0n
    return format === 'DEC' ? nano.toString() : `0x${nano.toString(16)}`
  }
  return { info: { type: 'BlockchainAccount', id: `account/${address}`, address, balance } }
}

function page({ blocks }, { workchain, shard, first, after, last, before }) {
  const given = (v) => v !== undefined && v !== null
  if (given(first) && (given(last) || given(before))) refuse('first with last or before')
  if (given(after) && (given(last) || given(before))) refuse('after with last or before')
  if ((given(first) && first < 1) || (given(last) && last < 1)) refuse('less than 1')
  if (given(shard) && !isHex(shard, 16)) refuse('shard')
  for (const cursor of [after, before]) {
    if (given(cursor) && !/^[0-9a-fm-]{0,64}$/.test(cursor)) refuse('cursor')
  }
  const all = blocks.filter((b) =>
    (!given(workchain) || b.workchain_id === workchain) && (!given(shard) || b.shard === shard.toLowerCase()) &&
    (!after || b.chain_order > after) && (!before || b.chain_order < before))
  const forward = given(first) || (!given(last) && given(after))
  const size = Math.min(first ?? last ?? pageSize, pageSize)
  const some = forward ? all.slice(0, size) : all.slice(-size)
  return {
    edges: some.map((b) => ({ node: { type: 'BlockchainBlock', ...b }, cursor: b.chain_order })),
    pageInfo: {
      startCursor: some[0]?.chain_order ?? '', endCursor: some.at(-1)?.chain_order ?? '',
      hasNextPage: forward && all.length > some.length, hasPreviousPage: !forward && all.length > some.length,
    },
  }
}

// stream checks a filter and returns a stream without blocks, because the chain does not grow.
function stream({ filter }) {
  for (; filter; filter = filter.OR) {
    for (const operators of Object.values(filter)) {
      if (operators?.in === null || operators?.notIn === null) refuse('a list that is null')
    }
  }
  return { [Symbol.asyncIterator]() { return { next: () => new Promise(() => {}) } } }
}

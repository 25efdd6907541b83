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
  if (given(shard) && !/^[0-9a-f]{16}$/i.test(shard)) refuse('shard')
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

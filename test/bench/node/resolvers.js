// Resolvers for the measured fields. They read a copy of the chain.
const pageSize = 50

export function resolvers({ blocks, balances }) {
  function page({ workchain, shard, first, after, last, before }) {
    let found = blocks
    if (workchain != null) found = found.filter((b) => b.workchain_id === workchain)
    if (shard != null) found = found.filter((b) => b.shard === shard)
    if (after != null) found = found.filter((b) => b.chain_order > after)
    if (before != null) found = found.filter((b) => b.chain_order < before)
    if (first != null || (last == null && after != null)) {
      const size = Math.min(first ?? pageSize, pageSize)
      return { blocks: found.slice(0, size), hasNextPage: found.length > size, hasPreviousPage: false }
    }
    const size = Math.min(last ?? pageSize, pageSize)
    return { blocks: found.slice(-size), hasNextPage: false, hasPreviousPage: found.length > size }
  }

  return {
    Query: { info: () => ({ version: '0', time: Date.now(), rempEnabled: false }), blockchain: () => ({}) },
    BlockchainQuery: {
      account: (_, { address }) => ({ info: { address: address.toLowerCase() } }),
      blocks: (_, args) => page(args),
    },
    BlockchainAccount: {
      id: ({ address }) => `account/${address}`,
      balance: ({ address }, { format }) => {
        const nano = balances[address] ?? '0'
        return format === 'DEC' ? nano : `0x${BigInt(nano).toString(16)}`
      },
    },
    BlockchainBlocksConnection: {
      edges: ({ blocks }) => blocks.map((node) => ({ node, cursor: node.chain_order })),
      pageInfo: (page) => ({
        startCursor: page.blocks[0]?.chain_order ?? '',
        endCursor: page.blocks.at(-1)?.chain_order ?? '',
        hasNextPage: page.hasNextPage,
        hasPreviousPage: page.hasPreviousPage,
      }),
    },
    BlockchainBlock: { id: ({ hash }) => `block/${hash}` },
  }
}

// The tabs that GraphiQL shows at first.
export const examples = (account) => [
  {
    query: `# The masterchain's latest blocks.
# Ctrl-Enter runs it.
query latestBlocks {
  blockchain {
    blocks(workchain: -1, last: 5) {
      edges {
        cursor
        node {
          seq_no
          hash
          gen_utime
          shard
        }
      }
      pageInfo {
        startCursor
      }
    }
  }
}
`,
  },
  {
    query: `# What an account holds, in nano-units.
query balance($address: String!) {
  blockchain {
    account(address: $address) {
      info {
        id
        address
        balance(format: DEC)
      }
    }
  }
}
`,
    variables: JSON.stringify({ address: account }, null, 2),
  },
  {
    query: `# Each new block as it comes, until stopped.
# The last cursor as "after": go on there.
subscription liveBlocks($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) {
    seq_no
    workchain_id
    shard
    gen_utime
    cursor
    id
  }
}
`,
    variables: JSON.stringify({ filter: { workchain_id: { eq: -1 } } }, null, 2),
  },
  {
    query: `# The service itself. Times are in milliseconds.
query service {
  info {
    version
    time
    lastBlockTime
    blocksLatency
    endpoints
  }
}
`,
  },
]

// The documents that the clients send. relay-compiler requires the form of their names.
const block = 'seq_no workchain_id shard gen_utime chain_order'

export const page = `query chainPageQuery($workchain: Int, $first: Int, $after: String, $last: Int) {
  blockchain {
    blocks(workchain: $workchain, first: $first, after: $after, last: $last) {
      edges { cursor node { id hash ${block} } }
      pageInfo { startCursor endCursor hasNextPage hasPreviousPage }
    }
  }
}`

export const account = `query chainAccountQuery($address: String!, $format: BigIntFormat) {
  blockchain { account(address: $address) { info { id address balance(format: $format) } } }
}`

export const version = 'query chainVersionQuery { info { version } }'

export const blocks = `subscription chainBlocksSubscription($filter: BlockFilter, $after: String) {
  blocks(filter: $filter, after: $after) { id ${block} }
}`

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

export const lookups = `query chainLookupsQuery($hash: String!, $workchain: Int!, $shard: String, $seqNo: Float!) {
  blockchain {
    block(hash: $hash) { id hash ${block} }
    block_by_seq_no(workchain: $workchain, shard: $shard, seq_no: $seqNo, archive: true) { id hash ${block} }
    prev_shard_blocks(hash: $hash) { id hash ${block} }
    next_shard_blocks(hash: $hash) { id hash ${block} }
  }
}`

export const times = `query chainTimesQuery($start: Int, $end: Int) {
  blockchain { master_seq_no_range(time_start: $start, time_end: $end) { start end } }
}`

export const range = `query chainRangeQuery($range: BlockchainMasterSeqNoFilter, $workchain: Int, $first: Int, $last: Int) {
  blockchain {
    blocks(master_seq_no_range: $range, workchain: $workchain, first: $first, last: $last) {
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
  blocks(filter: $filter, after: $after) { id cursor ${block} }
}`

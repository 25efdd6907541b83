// Lines finds blocks that are missing from a stream. In each shard, sequence numbers
// increase by one. After a split, they continue from the parent's number; after a merge,
// from the higher number of the two shards.
export class Lines {
  last = new Map()

  // add processes the next block and returns the number of blocks that are missing before it.
  add({ workchain_id, shard, seq_no }) {
    const at = BigInt(`0x${shard}`)
    const bit = at & -at
    const known = [[at], bit < 1n << 63n ? [parent(at, bit)] : [], bit > 1n ? [at - bit / 2n, at + bit / 2n] : []]
      .map((shards) => Math.max(...shards.map((one) => this.last.get(`${workchain_id}:${one}`) ?? -1)))
    this.last.set(`${workchain_id}:${at}`, seq_no)
    const before = Math.max(...known)
    return before < 0 ? 0 : Math.max(seq_no - before - 1, 0)
  }
}

const parent = (shard, bit) => (shard - bit) | (bit << 1n)

// The expected blocks: the recorded ones, followed by the simulated ones, which
// this file computes independently of the server.
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { root } from './processes.js'

// recording returns a recorded file and its path.
export function recording(name) {
  const path = join(root, 'testdata', 'recordings', `${name}.json.gz`)
  return { path, ...JSON.parse(gunzipSync(readFileSync(path))) }
}

const masterchain = -1

// The epoch of the main server's chain. The servers that single cases start have none.
export const epoch = 'mk2p9q'

// cursorOf returns the cursor of a block of the main server.
export const cursorOf = (block) => (block === undefined ? '' : `${block.chain_order}~${epoch}`)

export class Chain {
  constructor(recorded) {
    this.blocks = recorded.blocks.filter((b) => b.chain_order).map(fromFile).sort(byOrder)
    // The number of blocks that a live client collects: all recorded blocks and some simulated ones.
    this.few = this.blocks.length + 10
    this.length = this.blocks.length
    this.tips = leaves(this.blocks)
    this.previous = new Map(recorded.blocks.map((b) => [b.hash, b.prev_hash]))
    this.following = new Map() // the blocks after each block
    for (const b of this.blocks) {
      const before = this.previous.get(b.id)
      this.following.set(before, [...(this.following.get(before) ?? []), b])
    }
  }

  recorded() {
    return this.blocks.slice(0, this.length)
  }

  // neighbors returns the recorded blocks before and after a block, as the hashes in the recording determine them.
  neighbors({ id }) {
    const byShard = (a, b) => (a.shard < b.shard ? -1 : 1)
    return {
      before: this.recorded().filter((b) => b.id === this.previous.get(id)),
      after: (this.following.get(id) ?? []).toSorted(byShard),
    }
  }

  // masterBlocks returns the recorded masterchain blocks, each with the blocks that it commits, itself included.
  masterBlocks() {
    const groups = [[]]
    for (const b of this.recorded()) {
      groups.at(-1).push(b)
      if (b.workchain_id === masterchain) groups.push([])
    }
    return groups.slice(0, -1).map((blocks) => ({ ...blocks.at(-1), blocks }))
  }

  // at returns the expected block with index i in the whole chain.
  at(i) {
    while (this.blocks.length <= i) this.round()
    return this.blocks[i]
  }

  // round appends the next block of each shard.
  round() {
    const master = this.tips.find((tip) => tip.workchain_id === masterchain)
    const number = master.seq_no + 1
    for (const tip of this.tips) tip.seq_no++
    const made = this.tips.map(({ workchain_id, shard, seq_no }) => ({
      id: createHash('sha256').update(`${workchain_id}:${shard}:${seq_no}`).digest('hex'),
      seq_no, workchain_id, shard,
      chain_order: workchain_id === masterchain
        ? `${ordered(seq_no)}m`
        : ordered(number) + ordered(workchain_id) + ordered(seq_no) + ordered(reversed(shard)),
    }))
    this.blocks.push(...made.sort(byOrder))
  }

  // check compares the received blocks with those expected from the beginning of the chain: the same blocks, in
  // the same order, with none missing and none twice.
  check(received, matches = () => true) {
    this.compare(received, matches, 0)
    return this.complete(received, matches)
  }

  // checkAfter compares the received blocks with the first blocks that are expected after a cursor.
  checkAfter(received, cursor, matches = () => true) {
    let i = 0
    while (this.at(i).chain_order <= cursor) i++
    this.compare(received, matches, i)
  }

  // cursorBefore returns a cursor after which there are some recorded blocks.
  cursorBefore(some) {
    return cursorOf(this.at(Math.max(this.length - some, 1) - 1))
  }

  // live returns the number of matching blocks that a live client collects.
  live(matches) {
    this.at(this.few)
    return Math.max(this.blocks.slice(0, this.few).filter(matches).length, 5)
  }

  compare(received, matches, i) {
    assert.ok(received.length > 0, 'no blocks')
    for (const [n, { cursor, ...block }] of received.entries()) {
      while (!matches(this.at(i))) i++
      const want = this.at(i++)
      if (cursor !== undefined) assert.equal(cursor, cursorOf(want), `the cursor of block ${n + 1} of ${received.length}`)
      if (want.gen_utime !== undefined) {
        assert.deepEqual(block, want, `block ${n + 1} of ${received.length}`)
        continue
      }
      const { gen_utime, ...rest } = block
      assert.deepEqual(rest, want, `block ${n + 1} of ${received.length}, which is simulated`)
      assert.ok(Number.isInteger(gen_utime) && Math.abs(Date.now() / 1000 - gen_utime) < 300, `gen_utime ${gen_utime}`)
    }
  }

  // complete checks that no recorded block is missing, and describes the numbers of blocks.
  complete(received, matches) {
    const recorded = this.blocks.slice(0, this.length).filter(matches).length
    assert.ok(received.length >= recorded, `received ${received.length} blocks, but ${recorded} were recorded`)
    return `${recorded} blocks equal to the file, followed by ${received.length - recorded} simulated blocks`
  }
}

function fromFile({ hash, seq_no, workchain, shard, gen_utime, chain_order }) {
  return { id: hash, seq_no, workchain_id: workchain, shard, gen_utime, chain_order }
}

// byOrder compares cursors byte by byte, because all cursors are ASCII.
function byOrder(a, b) {
  return a.chain_order < b.chain_order ? -1 : a.chain_order > b.chain_order ? 1 : 0
}

// leaves returns the shards that have not been split, with the sequence number of their last block.
function leaves(blocks) {
  const last = new Map()
  for (const b of blocks) last.set(`${b.workchain_id}:${b.shard}`, { workchain_id: b.workchain_id, shard: b.shard, seq_no: b.seq_no })
  const all = [...last.values()]
  return all.filter((a) => !all.some((b) => b !== a && b.workchain_id === a.workchain_id && bits(b.shard).startsWith(bits(a.shard))))
}

// bits returns the prefix of a shard, which ends before its lowest set bit.
function bits(shard) {
  return BigInt('0x' + shard).toString(2).padStart(64, '0').replace(/10*$/, '')
}

function reversed(shard) {
  return BigInt('0b' + [...BigInt('0x' + shard).toString(2).padStart(64, '0')].reverse().join(''))
}

function ordered(n) {
  const digits = n.toString(16)
  return (digits.length - 1).toString(16) + digits
}

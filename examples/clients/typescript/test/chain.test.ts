import assert from 'node:assert/strict'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { describe, test } from 'node:test'
import WebSocket, { WebSocketServer } from 'ws'
import { Chain, Refused, type Block, type BlockFilter } from '../src/chain.js'
import { badLine, slowLine } from './line.js'
import { account, blocks, free, serve, type Recorded } from './service.js'

const open = (service: string, secret = 's3cret') => new Chain({ service, project: 'shop', secret, webSocket: WebSocket })
const shown = ({ hash, workchain, shard, seq_no, gen_utime, chain_order }: Recorded): Block =>
  ({ id: hash, workchain_id: workchain, shard, seq_no, gen_utime, chain_order, cursor: chain_order })

async function take(count: number, from: AsyncIterable<Block>, each = async (_: number) => {}) {
  const taken: Block[] = []
  for await (const block of from) {
    await each(taken.push(block))
    if (taken.length === count) break
  }
  return taken
}

describe('a client', { concurrency: true }, () => {
  test('all blocks arrive once and in order although the connection is cut', { timeout: 30_000 }, async () => {
    const service = await serve(150)
    const line = await badLine(service.url, 0, 10_000)
    try {
      assert.deepEqual(await take(blocks.length, open(line.url).blocks('')), blocks.map(shown))
      assert.ok(line.losses() >= 5, `only ${line.losses()} cuts`)
    } finally {
      line.close()
      await service.stop()
    }
  })

  test('a connection that goes silent is replaced', { timeout: 30_000 }, async () => {
    const service = await serve(300)
    const line = await badLine(service.url, 5_000, 20_000, true) // after the handshake, which has its own timeout
    try {
      const chain = new Chain({ service: line.url, project: 'shop', secret: 's3cret', patience: 100, webSocket: WebSocket })
      assert.deepEqual(await take(blocks.length, chain.blocks('')), blocks.map(shown))
      assert.ok(line.losses() > 0)
    } finally {
      line.close()
      await service.stop()
    }
  })

  test('a slow connection is not considered lost', { timeout: 60_000 }, async () => {
    const service = await serve(1e6)
    const line = await slowLine(service.url, 20_000)
    try {
      const chain = new Chain({ service: line.url, project: 'shop', secret: 's3cret', patience: 4_000, webSocket: WebSocket })
      assert.deepEqual(await take(blocks.length, chain.blocks('')), blocks.map(shown)) // takes longer than a ping and its pong may take
      assert.equal(line.lines(), 1)
    } finally {
      line.close()
      await service.stop()
    }
  })

  test('no block arrives twice after an unnecessary close', { timeout: 10_000 }, async () => {
    let asked = 0
    const service = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'graphql-transport-ws' })
    service.on('connection', (socket) => {
      socket.on('message', (message) => {
        const { type, id } = JSON.parse(String(message))
        if (type === 'connection_init') socket.send('{"type":"connection_ack"}')
        if (type !== 'subscribe') return
        asked++
        for (const block of blocks.slice(0, asked)) socket.send(JSON.stringify({ type: 'next', id, payload: { data: { blocks: shown(block) } } }))
        socket.close(1000)
      })
    })
    try {
      await once(service, 'listening')
      const { port } = service.address() as AddressInfo
      assert.deepEqual(await take(4, open(`http://127.0.0.1:${port}`).blocks('')), blocks.slice(0, 4).map(shown))
    } finally {
      service.close()
    }
  })

  test('no block arrives twice if the service becomes unavailable after an unnecessary close', { timeout: 10_000 }, async () => {
    const asked: string[] = []
    const service = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'graphql-transport-ws' })
    service.on('connection', (socket) => {
      socket.on('message', (message) => {
        const { type, id, payload } = JSON.parse(String(message))
        if (type === 'connection_init') socket.send('{"type":"connection_ack"}')
        if (type !== 'subscribe') return
        asked.push(payload.variables.after)
        const count = asked.length === 2 ? 1 : 4 // the second subscription ends after a block that the client has
        const sent = blocks.filter((b) => b.chain_order > payload.variables.after).slice(0, count).map(shown)
        for (const block of sent) socket.send(JSON.stringify({ type: 'next', id, payload: { data: { blocks: block } } }))
        if (asked.length === 1) socket.close(1000)
        if (asked.length === 2) socket.send(JSON.stringify({ type: 'error', id, payload: [{ message: 'stopping', extensions: { code: 'SERVICE_UNAVAILABLE', cursor: sent[0]!.cursor } }] }))
      })
    })
    try {
      await once(service, 'listening')
      const { port } = service.address() as AddressInfo
      assert.deepEqual(await take(8, open(`http://127.0.0.1:${port}`).blocks('')), blocks.slice(0, 8).map(shown))
      assert.deepEqual(asked, ['', '', blocks[3]!.chain_order]) // graphql-ws itself has retried with the old cursor
    } finally {
      service.close()
    }
  })

  test('a client continues from the cursor, and reports that the chain was replaced', { timeout: 10_000 }, async () => {
    const asked: string[] = []
    const service = new WebSocketServer({ host: '127.0.0.1', port: 0, handleProtocols: () => 'graphql-transport-ws' })
    service.on('connection', (socket) => {
      socket.on('message', (message) => {
        const { type, id, payload } = JSON.parse(String(message))
        if (type === 'connection_init') socket.send('{"type":"connection_ack"}')
        if (type !== 'subscribe') return
        if (asked.push(payload.variables.after) === 1) {
          const block = { ...shown(blocks[0]!), cursor: `${blocks[0]!.chain_order}~one` }
          socket.send(JSON.stringify({ type: 'next', id, payload: { data: { blocks: block } } }))
          socket.close(1012)
        } else {
          socket.send(JSON.stringify({ type: 'error', id, payload: [{ message: 'again', extensions: { code: 'EPOCH_CHANGED' } }] }))
        }
      })
    })
    try {
      await once(service, 'listening')
      const { port } = service.address() as AddressInfo
      await assert.rejects(take(2, open(`http://127.0.0.1:${port}`).blocks('')), (err) => err instanceof Refused && err.code === 'EPOCH_CHANGED')
      assert.deepEqual(asked, ['', `${blocks[0]!.chain_order}~one`])
    } finally {
      service.close()
    }
  })

  test('new blocks arrive after a restart of the service', { timeout: 30_000 }, async () => {
    const address = await free()
    let service = await serve(200, address)
    try {
      const chain = open(service.url)
      const after = await chain.newest() // usually "", because there is no block yet
      let restarted = Promise.resolve()
      const got = await take(150, chain.blocks(after, { workchain_id: { eq: -1 } }), async (count) => {
        if (count === 100) restarted = service.stop().then(async () => void (service = await serve(200, address)))
      })
      await restarted
      assert.deepEqual(got, blocks.filter((b) => b.workchain === -1 && b.chain_order > after).slice(0, 150).map(shown))
    } finally {
      await service.stop()
    }
  })

  test('with one shared service', { timeout: 30_000 }, async (t) => {
    const service = await serve(1e6)
    t.after(() => service.stop())

    await t.test('a balance is exact', async () => {
      assert.equal(await open(service.url).balance(account.address), BigInt(account.balance))
    })

    await t.test('a wrong secret is reported immediately', async () => {
      const chain = open(service.url, 'wrong')
      await assert.rejects(chain.newest(), (err) => err instanceof Refused && err.code === 'UNAUTHENTICATED')
      await assert.rejects(take(1, chain.blocks('')), /4403/)
    })

    await t.test('a cursor of another chain is refused immediately', async () => {
      await assert.rejects(take(1, open(service.url).blocks('no cursor')), (err) => err instanceof Refused && err.code === 'BAD_USER_INPUT')
    })

    await t.test('no block arrives after the caller aborts', async () => {
      const abort = new AbortController()
      const got = await take(5, open(service.url).blocks('', undefined, abort.signal), async () => abort.abort())
      assert.equal(got.length, 1)
    })

    await t.test('a filter has types', () => {
      const right: BlockFilter = { workchain_id: { in: [-1, 0] }, OR: { seq_no: { ge: 1 } } }
      // @ts-expect-error a string is no workchain
      const wrong: BlockFilter = { workchain_id: { eq: '-1' } }
      assert.notDeepEqual(right, wrong)
    })
  })
})

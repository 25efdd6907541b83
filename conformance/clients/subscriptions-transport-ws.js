// subscriptions-transport-ws: the client that the protocol graphql-ws is of.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { SubscriptionClient } from 'subscriptions-transport-ws'
import WebSocket from 'ws'
import { serve } from '../processes.js'

const fields = 'id seq_no workchain_id shard gen_utime chain_order'
const all = { query: `subscription{blocks{${fields}}}` }

// until waits for something to become so. The runner limits the time.
async function until(done) {
  while (!done()) await sleep(10)
}

// listen subscribes and collects the blocks that come.
function listen(client, operation) {
  const heard = { blocks: [], error: undefined, completed: false }
  const subscription = client.request(operation).subscribe({
    next: ({ data, errors }) => (errors ? (heard.error ??= errors[0]) : heard.blocks.push(data.blocks)),
    error: (err) => (heard.error ??= err),
    complete: () => (heard.completed = true),
  })
  heard.leave = () => subscription.unsubscribe()
  heard.upTo = async (count) => {
    await until(() => heard.error || heard.completed || heard.blocks.length >= count)
    assert.equal(heard.error, undefined, JSON.stringify(heard.error))
    assert.equal(heard.completed, false, 'completed by the server')
    return heard.blocks.slice(0, count)
  }
  return heard
}

// overheard makes sockets whose frames are kept.
function overheard(frames) {
  return class extends WebSocket {
    constructor(...args) {
      super(...args)
      this.on('message', (data) => frames.push(JSON.parse(data)))
    }
  }
}

// refusal is what a connection is refused with.
function refusal(url, connectionParams) {
  return new Promise((resolve, reject) => {
    const client = new SubscriptionClient(url, {
      connectionParams,
      connectionCallback: (err) => {
        client.close()
        err ? resolve(err) : reject(new Error(`${JSON.stringify(connectionParams)} was admitted`))
      },
    }, WebSocket)
  })
}

export default [
  {
    name: 'subscriptions-transport-ws, all workchains', phase: 'live',
    run: async ({ server, chain }) => {
      const client = new SubscriptionClient(server.socket, { reconnect: false }, WebSocket)
      const result = chain.checkLive(await listen(client, all).upTo(chain.few))
      client.close()
      return result
    },
  },
  {
    name: 'subscriptions-transport-ws, several operations, unsubscribe', phase: 'live',
    run: async ({ server, chain }) => {
      const frames = []
      const client = new SubscriptionClient(server.socket, { reconnect: false }, overheard(frames))
      const query = `subscription blocks($filter:BlockFilter){blocks(filter:$filter){${fields}}}`
      const { shard } = chain.tips.find((tip) => tip.workchain_id === 0)
      const operations = [
        [{ query: `subscription{blocks{${fields}}}` }, () => true],
        [{ query, variables: { filter: { workchain_id: { eq: -1 } } } }, (b) => b.workchain_id === -1],
        [{ query, variables: { filter: { workchain_id: { eq: 0 } } } }, (b) => b.workchain_id === 0],
        [{ query, variables: { filter: { shard: { eq: shard } } } }, (b) => b.shard === shard],
        [{ query, variables: { filter: { workchain_id: { eq: -1 }, OR: { shard: { eq: shard } } } } }, (b) => b.workchain_id === -1 || b.shard === shard],
      ]
      const left = listen(client, operations[0][0]) // the first: the client calls it 1
      const heard = operations.map(([operation]) => listen(client, operation))

      const some = chain.recorded ? 100 : 4
      await left.upTo(some)
      const unsubscribed = left.blocks.length
      left.leave()
      // A query beside them.
      await new Promise((resolve, reject) => client.request({ query: '{info{version}}' }).subscribe({ next: resolve, error: reject }))

      for (const [i, [, matches]] of operations.entries()) {
        const count = chain.blocks.slice(0, chain.few).filter(matches).length
        chain.checkLive(await heard[i].upTo(Math.max(count, 2)), matches)
      }
      assert.equal(left.blocks.length, unsubscribed, 'blocks after unsubscribe')
      const completed = frames.findIndex((f) => f.id === '1' && f.type === 'complete')
      assert.ok(completed > 0, 'stop was not answered with complete')
      assert.equal(frames.findLastIndex((f) => f.id === '1'), completed, 'frames after complete')
      assert.ok(frames.length - completed > some, 'the socket went on')
      client.close()
      return `${operations.length} operations right, and nothing after unsubscribe`
    },
  },
  {
    name: 'subscriptions-transport-ws, credentials', phase: 'guarded',
    run: async ({ guarded: { socket }, secret }) => {
      const basic = (s) => ({ Authorization: `Basic ${btoa(`:${s}`)}` })
      for (const connectionParams of [basic(secret), { accessKey: secret }]) {
        const client = new SubscriptionClient(socket, { connectionParams }, WebSocket)
        await listen(client, all).upTo(2)
        client.close()
      }
      const wrong = [{}, basic('wrong'), { accessKey: 'wrong' }, { Authorization: 'Basic !' }, { Authorization: `Bearer ${secret}` }]
      for (const connectionParams of wrong) {
        assert.equal((await refusal(socket, connectionParams)).message, 'Unauthorized access')
      }
      assert.equal((await refusal(socket.replace('/demo/', '/nobody/'), basic(secret))).message, 'Unauthorized access')
      return `2 right ones admitted, ${wrong.length + 1} refused with connection_error`
    },
  },
  {
    name: 'subscriptions-transport-ws, reconnect', phase: 'apart',
    run: async () => {
      const frames = []
      const first = await serve()
      const client = new SubscriptionClient(first.socket, { reconnect: true }, overheard(frames))
      let reconnected = 0
      client.onReconnected(() => reconnected++)
      const heard = listen(client, all)
      await heard.upTo(3)
      const before = frames.length
      await first.stop()
      assert.equal(frames[before - 1].type, 'data')
      const farewell = frames.findLast((f) => f.type === 'connection_error')
      assert.ok(farewell?.payload.message, 'the socket was not told')

      const seen = heard.blocks.length
      const again = await serve('-addr', first.address)
      await heard.upTo(seen + 3)
      assert.equal(reconnected, 1)
      client.close()
      await again.stop()
      return `told "${farewell.payload.message}", back on its own, blocks go on`
    },
  },
]

// wscat: a start message that is pasted into its prompt, without connection_init,
// and the messages of graphql-transport-ws.
import assert from 'node:assert/strict'
import { createInterface } from 'node:readline'
import { join } from 'node:path'
import { end, here, start } from '../processes.js'

const fields = 'id seq_no workchain_id shard gen_utime chain_order'
const subscribe = (id, query) => JSON.stringify({ id, type: 'start', payload: { query } })

// A Wscat is a running wscat. frames yields the frames that it prints.
class Wscat {
  constructor(url, ...args) {
    if (!args.includes('-s')) args.unshift('-s', 'graphql-ws')
    this.child = start(join(here, 'node_modules/.bin/wscat'), ['-c', url, ...args])
    this.frames = (async function* (lines) {
      // wscat prints its prompt before the output that follows a typed line.
      for await (const line of lines) yield JSON.parse(line.replace(/^(> )+/, ''))
    })(createInterface({ input: this.child.stdout }))
  }

  type(line) {
    this.child.stdin.write(line + '\n')
  }

  async next() {
    const { value, done } = await this.frames.next()
    if (done) throw new Error(`wscat ended with ${await this.child.ended}: ${this.child.errors}`)
    return value
  }

  // connected waits until wscat is connected. wscat does not report that, and
  // discards input before, so this repeats a query until there is a response.
  async connected() {
    let asked = 0
    const ask = () => this.type(subscribe(`ready ${++asked}`, '{info{version}}'))
    ask()
    const again = setInterval(ask, 150)
    const first = await this.next()
    clearInterval(again)
    assert.equal(first.type, 'data')
    assert.match(first.payload.data.info.version, /^[0-9.]+$/)
  }

  close() {
    return end(this.child)
  }
}

async function blocks(wscat, id, count, type = 'data') {
  const all = []
  while (all.length < count) {
    const frame = await wscat.next()
    if (String(frame.id).startsWith('ready') || ['ka', 'ping'].includes(frame.type)) continue
    assert.equal(frame.type, type, JSON.stringify(frame))
    assert.equal(frame.id, id)
    assert.equal(frame.payload.errors, undefined)
    all.push(frame.payload.data.blocks)
  }
  return all
}

// refused returns the first frame before the connection ended, or the HTTP error.
async function refused(url, ...args) {
  const wscat = new Wscat(url, ...args)
  const frames = []
  for await (const frame of wscat.frames) frames.push(frame)
  await wscat.child.ended
  return frames[0] ?? wscat.child.errors.trim()
}

export default [
  {
    name: 'wscat, no init, typed', phase: 'live',
    run: async ({ server, chain }) => {
      const wscat = new Wscat(server.socket)
      await wscat.connected()
      wscat.type(subscribe('1', `subscription{blocks{${fields}}}`))
      const result = chain.check(await blocks(wscat, '1', chain.few))
      await wscat.close()
      return result
    },
  },
  {
    name: 'wscat, no init, -x, masterchain', phase: 'live',
    run: async ({ server, chain }) => {
      const query = `subscription{blocks(filter:{workchain_id:{eq:-1}}){${fields}}}`
      const wscat = new Wscat(server.socket, '-w', '-1', '-x', subscribe(7, query))
      const masterchain = (b) => b.workchain_id === -1
      const count = chain.blocks.slice(0, chain.length).filter(masterchain).length + 2
      const result = chain.check(await blocks(wscat, 7, count), masterchain)
      await wscat.close()
      return result
    },
  },
  {
    name: 'wscat, graphql-transport-ws', phase: 'live',
    run: async ({ server, chain }) => {
      const messages = [{ type: 'connection_init' }, { type: 'ping', payload: { n: 1 } }, {
        id: 'a b', type: 'subscribe', payload: { query: `subscription{blocks(filter:{workchain_id:{eq:-1}}){${fields}}}` },
      }]
      const wscat = new Wscat(server.socket, '-s', 'graphql-transport-ws', '-w', '-1', ...messages.flatMap((m) => ['-x', JSON.stringify(m)]))
      assert.deepEqual(await wscat.next(), { type: 'connection_ack' })
      assert.deepEqual(await wscat.next(), { type: 'pong', payload: { n: 1 } })
      const masterchain = (b) => b.workchain_id === -1
      const result = chain.check(await blocks(wscat, 'a b', chain.live(masterchain), 'next'), masterchain)
      await wscat.close()
      return result
    },
  },
  {
    name: 'wscat, several operations', phase: 'read',
    run: async ({ server }) => {
      const wscat = new Wscat(server.socket)
      await wscat.connected()
      const next = async () => {
        const frame = await wscat.next()
        return String(frame.id).startsWith('ready') ? next() : frame
      }
      const query = 'query($n:Int){blockchain{blocks(workchain:-1,after:"",first:$n){edges{node{seq_no}}}}}'
      wscat.type(JSON.stringify({ id: 'q', type: 'start', payload: { query, variables: { n: 2 } } }))
      const edges = [{ node: { seq_no: 1 } }, { node: { seq_no: 2 } }]
      assert.deepEqual(await next(), { type: 'data', id: 'q', payload: { data: { blockchain: { blocks: { edges } } } } })
      assert.deepEqual(await next(), { type: 'complete', id: 'q', payload: null })

      const follow = (workchain) => `subscription{blocks(after:"",filter:{workchain_id:{eq:${workchain}}}){workchain_id seq_no}}`
      wscat.type(subscribe('master', follow(-1)))
      wscat.type(subscribe('base', follow(0)))
      const had = { master: [], base: [] }
      const take = ({ type, id, payload }) => {
        assert.equal(type, 'data')
        assert.equal(payload.data.blocks.workchain_id, id === 'master' ? -1 : 0)
        had[id].push(payload.data.blocks.seq_no)
      }
      while (had.master.length < 5 || had.base.length < 5) take(await next())
      wscat.type(JSON.stringify({ id: 'master', type: 'stop' }))
      for (let frame = await next(); frame.type !== 'complete'; frame = await next()) take(frame)
      assert.deepEqual(had.master, had.master.map((_, i) => i + 1))
      const seen = had.base.length
      while (had.base.length < seen + 5) {
        const frame = await next()
        assert.equal(frame.id, 'base', 'a frame of a subscription arrived after its complete')
        take(frame)
      }
      await wscat.close()
      return `a query with variables; ${had.master.length} and ${had.base.length} blocks of two subscriptions; no block after stop`
    },
  },
  {
    name: 'wscat, credentials', phase: 'guarded',
    run: async ({ guarded: { socket }, secret }) => {
      const ask = ['-w', '-1', '-x', subscribe('1', 'subscription{blocks{id}}')]
      const basic = `Basic ${btoa(`:${secret}`)}`
      const init = (payload) => ['-x', JSON.stringify({ type: 'connection_init', payload })]
      const right = [
        ['--auth', `:${secret}`, ...ask],
        ['-H', `Authorization:${basic}`, ...ask],
        [...init({ Authorization: basic }), ...ask],
        [...init({ accessKey: secret }), ...ask],
      ]
      await Promise.all(right.map(async (args) => {
        const wscat = new Wscat(socket, ...args)
        let frame = await wscat.next()
        while (['connection_ack', 'ka'].includes(frame.type)) frame = await wscat.next()
        assert.equal(frame.type, 'data')
        assert.match(frame.payload.data.blocks.id, /^[0-9a-f]{64}$/)
        await wscat.close()
      }))

      const headers = [['--auth', ':wrong'], ['-H', 'Authorization:Basic !'], ['--auth', `demo:${secret}`]]
      await Promise.all(headers.map(async (args) => {
        assert.match(await refused(socket, ...args, ...ask), /Unexpected server response: 401$/)
      }))
      const messages = [ask, init({ Authorization: `Basic ${btoa(':wrong')}` }), init({}), [...init({ accessKey: 'wrong' }), ...ask]]
      await Promise.all(messages.map(async (args) => {
        const frame = await refused(socket, ...args, '-w', '-1')
        assert.equal(frame.type, 'connection_error', JSON.stringify(frame))
        assert.equal(frame.payload.message, 'Unauthorized access')
      }))
      return `${right.length} right credentials are accepted, ${headers.length} wrong ones are refused with 401, ${messages.length} with connection_error`
    },
  },
]

// The test cases that every client must pass. A client is represented by an
// adapter:
//
//   name       package, version and variant of the client
//   protocol   'HTTP', 'SSE', 'graphql-ws' or 'graphql-transport-ws'
//   onCut      what the client does with its subscriptions if the connection is
//              lost: it 'repeats' them from the beginning, 'resumes' them, or
//              'reports' the error to its user; undefined if the client has no
//              subscriptions
//   persisted  HTTP method of the first request for a persisted query
//   fetches    true if the client subscribes over a socket but queries over HTTP
//   compiled   true if the client supports only the documents of documents.js
//   prepare    prepares the client before the first operation
//   refusal    (place, options) returns the error of a refused connection, if
//              operations do not report it
//   open       (place, options) opens a line:
//
//     ask      (operation) returns the data of the response, or fails
//     listen   (operation, {next, resultErrors, error, complete}) subscribes and
//              returns a function that unsubscribes
//     close    closes all connections
//
// A place is {url, socket}. The options are credentials (headers or connection
// parameters), fetch, WebSocket, and retry (whether the client may reconnect).
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { cursorOf } from './chain.js'
import { recordFrames } from './clients/websocket.js'
import * as documents from './documents.js'
import { Listener, plain, said, until } from './listener.js'
import { free, serve } from './processes.js'
import { proxy } from './proxy.js'

const everything = () => true
const masterchain = (b) => b.workchain_id === -1
const basechain = (b) => b.workchain_id === 0
const onSocket = ({ protocol }) => protocol.endsWith('-ws')
const listens = ({ onCut }) => onCut !== undefined

// refused queries and subscribes, and returns the errors with which both failed.
async function refused(adapter, place, credentials) {
  const options = { credentials, retry: false }
  if (adapter.refusal) return [await adapter.refusal(place, options)]
  const line = adapter.open(place, options)
  const answers = [line.ask({ query: documents.version }).then(() => assert.fail('the query succeeded'), (err) => err)]
  if (listens(adapter)) answers.push(new Listener(line, { query: documents.blocks }).refused())
  const all = await Promise.all(answers)
  line.close()
  return all
}

async function fails(line, operation, words) {
  const err = await line.ask(operation).then(() => assert.fail('the query succeeded'), (err) => err)
  assert.match(said(err), words)
}

// node returns an expected block as queries return it.
const node = ({ id, ...rest }) => ({ id: `block/${id}`, hash: id, ...rest })

// collect waits for count more blocks and acts like a user of the client: if a
// subscription fails, it subscribes again after the last received block.
async function collect(adapter, line, operation, listeners, count) {
  const received = () => listeners.flatMap((l) => l.blocks)
  const goal = received().length + count
  while (received().length < goal) {
    const now = listeners.at(-1)
    await until(() => now.trouble || received().length >= goal)
    if (!now.trouble) continue
    const cursor = positionOf(now.trouble)
    if (adapter.onCut !== 'reports' && cursor === undefined) assert.fail(`the subscription ended: ${said(now.trouble)}`)
    await sleep(100)
    const after = cursor ?? received().at(-1)?.cursor
    listeners.push(new Listener(line, { ...operation, variables: { ...operation.variables, after } }))
  }
  for (const { code } of listeners.flatMap((l) => l.resultErrors.map((err) => err.extensions))) assert.equal(code, 'SERVICE_UNAVAILABLE')
  return received()
}

// positionOf returns the cursor of an error, from which the client should resume.
// Each client has its own way to pass errors of the server on to its user.
function positionOf(trouble) {
  const lists = [trouble, trouble.protocolErrors, trouble.graphQLErrors, trouble.errors]
  const errors = lists.find((list) => Array.isArray(list) && list.length > 0)
  return errors?.[0]?.extensions?.cursor
}

// runs splits the received blocks into parts in which the cursors ascend.
function runs(blocks) {
  const all = [[]]
  for (const block of blocks) {
    if (block.chain_order <= (all.at(-1).at(-1)?.chain_order ?? '')) all.push([])
    all.at(-1).push(block)
  }
  return all
}

const cases = [
  {
    name: 'queries', phase: 'read', of: everything,
    async run(adapter, { server, chain }) {
      const line = adapter.open(server, {})
      const after = chain.cursorBefore(200)
      const sizes = [1, 2, 3, 4, 5]
      const pages = await Promise.all(sizes.map((first) => line.ask({ query: documents.page, variables: { workchain: -1, first, after } })))
      sizes.forEach((first, i) => {
        const { edges, pageInfo } = plain(pages[i]).blockchain.blocks
        assert.equal(edges.length, first)
        assert.equal(pageInfo.endCursor, edges.at(-1).cursor)
        chain.checkAfter(edges.map(({ cursor, node: { hash, ...rest } }) => ({ ...rest, id: hash, cursor })), after, masterchain)
      })
      const address = `0:${'ab'.repeat(32)}`
      const asked = await line.ask({ query: documents.account, variables: { address, format: 'DEC' } })
      assert.deepEqual(plain(asked).blockchain.account.info, { id: `account/${address}`, address, balance: '0' })
      const old = { first: 1, after: `${after}2` } // of another epoch
      await fails(line, { query: documents.page, variables: old }, /The chain was replaced/)
      await fails(line, { query: documents.account, variables: { address: 'nobody' } }, /Invalid account address/)
      await fails(line, { query: documents.account, variables: {} }, /\$address/)
      if (!adapter.compiled) await fails(line, { query: 'query chainWrongQuery { info { nope } }' }, /Cannot query field "nope"/)
      line.close()
      return `${sizes.length} concurrent pages, and errors are reported`
    },
  },
  {
    name: 'single blocks', phase: 'read', of: everything,
    async run(adapter, { server, chain }) {
      const line = adapter.open(server, {})
      const ask = async (variables) => plain(await line.ask({ query: documents.lookups, variables })).blockchain
      const inShard = ({ workchain_id, shard, seq_no }) => ({ workchain: workchain_id, shard, seqNo: seq_no })
      const known = chain.recorded().filter((b) => chain.following.has(b.id))
      const split = known.filter((b) => chain.following.get(b.id).length === 2)
      const afterSplit = split.flatMap((b) => chain.following.get(b.id))
      assert.ok(split.length > 0, 'the recording has no split')
      const some = [known.find(masterchain), known.find(basechain), ...split, ...afterSplit, known.at(-1)]
      for (const b of some) {
        const { before, after } = chain.neighbors(b)
        assert.deepEqual(await ask({ hash: b.id, ...inShard(b) }), {
          block: node(b), block_by_seq_no: node(b), prev_shard_blocks: before.map(node), next_shard_blocks: after.map(node),
        })
      }
      const unknown = await ask({ hash: 'f'.repeat(64), ...inShard({ ...split[0], seq_no: 1e6 }) })
      assert.deepEqual(unknown, { block: null, block_by_seq_no: null, prev_shard_blocks: [], next_shard_blocks: [] })
      const { shard, ...rest } = inShard(split[0])
      await fails(line, { query: documents.lookups, variables: { hash: split[0].id, ...rest } }, /"shard\\*" parameter must be defined/)
      await fails(line, { query: documents.lookups, variables: { hash: 'f', shard, ...rest } }, /Invalid hash/)
      line.close()
      return `${some.length} blocks with their neighbors, and ${split.length} splits`
    },
  },
  {
    name: 'ranges of times', phase: 'read', of: everything,
    async run(adapter, { server, chain }) {
      const line = adapter.open(server, {})
      const masters = chain.masterBlocks()
      const time = (i) => masters[i].gen_utime
      const times = [[time(0), time(20)], [time(0) - 1, time(40) + 1], [time(50) - 1, time(50)], [time(70), time(70)]]
      for (const [start, end] of times) {
        const want = {
          start: masters.find((b) => b.gen_utime >= start).seq_no,
          end: masters.find((m) => m.blocks.every((b) => b.gen_utime >= end)).seq_no,
        }
        const asked = plain(await line.ask({ query: documents.times, variables: { start, end } }))
        assert.deepEqual(asked.blockchain.master_seq_no_range, want)
      }
      await fails(line, { query: documents.times, variables: { start: 2, end: 1 } }, /time_start should not be greater than time_end/)
      for (const [start, end] of [[1, 4], [30, 36], [100, 101], [7, 7]]) {
        const all = masters.filter((m) => m.seq_no >= start && m.seq_no < end).flatMap((m) => m.blocks)
        for (const [args, want] of [
          [{ first: 50 }, all], [{ last: 2 }, all.slice(-2)], [{ workchain: 0, first: 3 }, all.filter(basechain).slice(0, 3)],
        ]) {
          const page = plain(await line.ask({ query: documents.range, variables: { range: { start, end }, ...args } })).blockchain.blocks
          assert.deepEqual(page.edges, want.map((b) => ({ cursor: cursorOf(b), node: node(b) })))
          assert.equal(page.pageInfo.endCursor, cursorOf(want.at(-1)))
        }
      }
      line.close()
      return 'the ranges of 4 pairs of times, and pages of 4 ranges'
    },
  },
  {
    name: 'live blocks', phase: 'live', of: listens,
    async run(adapter, { server, chain }) {
      const line = adapter.open(server, {})
      const operation = { query: documents.blocks, variables: { filter: { workchain_id: { eq: -1 } } } }
      const listener = new Listener(line, operation)
      const result = chain.check(await listener.upTo(chain.live(masterchain)), masterchain)
      line.close()
      return result
    },
  },
  {
    name: 'several subscriptions, unsubscribe', phase: 'live', of: listens,
    async run(adapter, { server, chain }) {
      const frames = []
      const line = adapter.open(server, onSocket(adapter) ? { WebSocket: recordFrames(frames) } : {})
      const { shard } = chain.tips.find(basechain)
      const listen = (filter) => new Listener(line, { query: documents.blocks, variables: { filter } })
      const left = listen({}) // listens first, so that its subscription is the first one in the frames
      const listeners = [
        [listen(undefined), everything],
        [listen({ workchain_id: { eq: -1 } }), masterchain],
        [listen({ workchain_id: { eq: 0 } }), basechain],
        [listen({ shard: { eq: shard } }), (b) => b.shard === shard],
        [listen({ workchain_id: { eq: -1 }, OR: { shard: { eq: shard } } }), (b) => b.workchain_id === -1 || b.shard === shard],
      ]
      await left.upTo(100)
      left.leave()
      const had = left.blocks.length
      await line.ask({ query: documents.version })
      if (onSocket(adapter)) await until(() => end(frames) > 0)
      await listen({ seq_no: { ge: 0 } }).upTo(1)
      const answered = frames.length
      for (const [listener, matches] of listeners) chain.check(await listener.upTo(chain.live(matches)), matches)
      assert.equal(left.blocks.length, had, 'blocks after unsubscribe')
      if (onSocket(adapter)) {
        await until(() => frames.slice(answered).some((f) => f.from === 'server')) // the other subscriptions continue
        nothingAfter(frames, answered)
      }
      line.close()
      return `${listeners.length} subscriptions with the right blocks, and no message after unsubscribe`
    },
  },
  {
    name: 'resume', phase: 'read', of: listens,
    async run(adapter, { server, chain }) {
      const line = adapter.open(server, {})
      const [late, early] = [chain.cursorBefore(100), chain.cursorBefore(Infinity)]
      const resumed = [[late, { workchain_id: { eq: -1 } }, masterchain], [late, undefined, everything], [early, { workchain_id: { eq: -1 } }, masterchain]]
      await Promise.all(resumed.map(async ([after, filter, matches]) => {
        const listener = new Listener(line, { query: documents.blocks, variables: { filter, after } })
        const recorded = chain.blocks.slice(0, chain.length).filter((b) => b.chain_order > after && matches(b)).length
        chain.checkAfter(await listener.upTo(Math.max(recorded + 1, 5)), after, matches)
      }))
      const refusal = await new Listener(line, { query: documents.blocks, variables: { after: `${late}2` } }).refused()
      assert.match(said(refusal), /The chain was replaced/)
      line.close()
      return 'from cursors to the newest block, without a gap, and a cursor of another epoch is refused'
    },
  },
  {
    name: 'lost connection', phase: 'read', of: listens,
    async run(adapter, { server, chain }) {
      const between = await proxy(server)
      const line = adapter.open(between.place(server), {})
      const after = chain.cursorBefore(3) // only a few blocks, so that all have arrived when the connection is cut
      const operation = { query: documents.blocks, variables: { after } }
      const listeners = [new Listener(line, operation)]
      await collect(adapter, line, operation, listeners, 6)
      between.cut()
      const expected = adapter.onCut === 'repeats' ? 2 : 1
      let parts // more blocks may arrive from before the cut
      do parts = runs(await collect(adapter, line, operation, listeners, 6))
      while (parts.length < expected)
      assert.equal(parts.length, expected)
      for (const part of parts) chain.checkAfter(part, after)
      line.close()
      between.close()
      return {
        repeats: 'the client subscribed again by itself', resumes: 'the client resumed by itself',
        reports: 'the client reported an error, and the user resumed',
      }[adapter.onCut]
    },
  },
  {
    name: 'server restart', phase: 'apart', of: listens,
    async run(adapter) {
      const address = await free()
      const server = await serve('-addr', address)
      const line = adapter.open(server, {})
      const operation = { query: documents.blocks, variables: { filter: { workchain_id: { eq: -1 } } } }
      const listeners = [new Listener(line, operation)]
      await collect(adapter, line, operation, listeners, 2)
      await server.stop()
      const again = await serve('-addr', address)
      await collect(adapter, line, operation, listeners, 2)
      line.close()
      await again.stop()
      return 'blocks continue after the restart'
    },
  },
  {
    name: 'credentials', phase: 'guarded', of: everything,
    async run(adapter, { guarded, secret }) {
      const basic = (s) => ({ Authorization: `Basic ${btoa(`:${s}`)}` })
      const right = [basic(secret), ...(onSocket(adapter) && !adapter.fetches ? [{ accessKey: secret }] : [])]
      for (const credentials of right) {
        const line = adapter.open(guarded, { credentials })
        assert.match(plain(await line.ask({ query: documents.version })).info.version, /^[0-9.]+$/)
        if (listens(adapter)) await new Listener(line, { query: documents.blocks }).upTo(2)
        line.close()
      }
      const elsewhere = { url: guarded.url.replace('/demo/', '/nobody/'), socket: guarded.socket.replace('/demo/', '/nobody/') }
      const wrong = [[guarded, {}], [guarded, basic('wrong')], [guarded, { Authorization: `Bearer ${secret}` }], [elsewhere, basic(secret)]]
      if (onSocket(adapter)) wrong.push([guarded, { accessKey: 'wrong' }])
      for (const [place, credentials] of wrong) {
        for (const err of await refused(adapter, place, credentials)) assert.match(said(err), /\b(401|4403)\b|Unauthorized access/)
      }
      return `${right.length} right credentials are accepted, ${wrong.length} wrong ones are refused`
    },
  },
  {
    name: 'persisted queries', phase: 'read', of: ({ persisted }) => persisted !== undefined,
    async run(adapter, { server }) {
      const asked = []
      const fetch = (to, init) => {
        asked.push(requestOf(to, init))
        return globalThis.fetch(to, init)
      }
      const line = adapter.open(server, { fetch })
      const unknown = `a${randomBytes(8).toString('hex')}`
      const query = `query chainPersistedQuery { ${unknown}: info { version } }`
      for (let i = 0; i < 3; i++) assert.match(plain(await line.ask({ query }))[unknown].version, /^[0-9.]+$/)
      line.close()
      const [{ hash }] = asked
      assert.match(hash, /^[0-9a-f]{64}$/)
      const seen = asked.map(({ method, ...rest }) => ({ ...rest, method: rest.text ? 'any' : method }))
      const byHash = { method: adapter.persisted, text: false, hash }
      assert.deepEqual(seen, [byHash, { method: 'any', text: true, hash }, byHash, byHash])
      return `by hash with ${adapter.persisted}, and the text is sent only once`
    },
  },
]

// end returns the index of the frame with which the client ends the first subscription of its socket.
function end(frames) {
  const { id } = frames.find((f) => f.from === 'client' && f.id !== undefined)
  return frames.findIndex((f) => f.from === 'client' && f.id === id && ['stop', 'complete'].includes(f.type))
}

// nothingAfter checks that the server sends no messages of an ended subscription after it has responded to a
// later operation, whose response is the frame with the index answered.
function nothingAfter(frames, answered) {
  const ended = frames[end(frames)]
  const last = frames.findLastIndex((f) => f.from === 'server' && f.id === ended.id)
  assert.ok(last < answered, `a message after unsubscribe: ${JSON.stringify(frames[last])}`)
  assert.equal(frames[last].type === 'complete', ended.type === 'stop', `the last message of the subscription: ${JSON.stringify(frames[last])}`)
}

// requestOf returns the method of a request, whether it contains a document, and the hash of its persisted query.
function requestOf(to, { method = 'GET', body }) {
  const parameters = new URL(to).searchParams
  const { query, extensions } = method === 'POST'
    ? JSON.parse(body)
    : { query: parameters.get('query'), extensions: JSON.parse(parameters.get('extensions')) }
  return { method, text: Boolean(query), hash: extensions?.persistedQuery?.sha256Hash }
}

// casesOf returns the cases of an adapter in the form that run.js expects.
export function casesOf(adapter) {
  return cases.filter((c) => c.of(adapter)).map(({ name, phase, run }) => ({
    name: `${adapter.name}, ${name}`, phase, run: (world) => run(adapter, world),
  }))
}

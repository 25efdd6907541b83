// Chromium: the browser builds of the clients, EventSource and fetch, in pages
// from an allowed origin, from another origin, and from the host itself.
import assert from 'node:assert/strict'
import { version } from '../documents.js'
import { webhost } from '../processes.js'
import { proxy } from '../proxy.js'
import { onStage } from './browser/stage.js'

const secret = 's3cret'
const basic = (s) => ({ Authorization: `Basic ${btoa(`:${s}`)}` })
const everyWay = ['subscriptions-transport-ws', 'graphql-ws', 'graphql-sse', 'EventSource']
const json = { 'content-type': 'application/json' }
const post = (headers) => ({ method: 'POST', headers, body: JSON.stringify({ query: version }) })
const byGet = (url) => `${url}?${new URLSearchParams({ query: version })}`

// inARow checks that the blocks are consecutive, without gaps and duplicates.
function inARow(blocks) {
  blocks.forEach((block, i) => {
    assert.equal(block.seq_no, blocks[0].seq_no + i)
    assert.ok(i === 0 || block.chain_order > blocks[i - 1].chain_order, `block ${i + 1}`)
  })
}

// receivesBlocks checks that a page receives consecutive blocks.
async function receivesBlocks(tab, way, host, credentials) {
  await tab.listen(way, host, credentials)
  inARow((await tab.upTo(5)).blocks)
}

// refused returns the error that a page receives instead of blocks.
async function refused(tab, way, host, credentials) {
  await tab.listen(way, host, credentials)
  return tab.trouble()
}

// responses returns the responses that a host has logged since the last call. If a
// response was for a page of the given origin and readable only by reader (or by
// no page, if reader is undefined), its text is only "method status".
async function responses(host, origin, reader) {
  const line = new RegExp(`^(\\w+) ${origin} (\\d+)${reader ? `, readable by ${reader.replace('*', '\\*')}` : ''}$`)
  return (await host.said()).map((said) => said.replace(line, '$1 $2'))
}

// caseOf returns a case that uses two tabs: ours shows a page of an allowed
// origin, and theirs shows a page of another origin.
const caseOf = (name, run) => ({
  name: `Chromium, ${name}`, phase: 'apart',
  run: () => onStage(async (stage) => {
    const [ours, theirs] = await Promise.all([stage.tab(stage.friend), stage.tab(stage.stranger)])
    const found = await run({ ...stage, ours, theirs })
    await Promise.all([ours.close(), theirs.close()])
    return found
  }),
})

// sockets returns the case of a client that opens a WebSocket.
const sockets = (way, unauthorized) => caseOf(way, async ({ friend, stranger, ours, theirs }) => {
  const open = await webhost('-origin', friend)
  await receivesBlocks(ours, way, open)
  assert.deepEqual(await responses(open, friend, friend), ['GET 101'])
  await refused(theirs, way, open)
  assert.deepEqual(await responses(open, stranger), ['GET 403'])
  await open.end()

  const guarded = await webhost('-origin', friend, '-secret', secret)
  await receivesBlocks(ours, way, guarded, basic(secret))
  for (const credentials of [basic('wrong'), {}]) assert.match(await refused(ours, way, guarded, credentials), unauthorized)
  assert.deepEqual(await responses(guarded, friend, friend), ['GET 101', 'GET 101', 'GET 101'])
  await guarded.end()
  return 'blocks for an allowed origin with the secret, and 403 for another origin'
})

export default [
  caseOf('fetch', async ({ version: chromium, friend, stranger, ours, theirs }) => {
    const open = await webhost('-origin', friend)
    const reads = ({ status, body }) => {
      assert.equal(status, 200)
      assert.match(body.data.info.version, /^[0-9.]+$/)
    }
    const readable = async (said, to, init) => {
      reads(await ours.ask(to, init))
      assert.deepEqual(await responses(open, friend, friend), said)
    }
    const blocked = async (tab, said, to, init) => {
      assert.match((await tab.ask(to, init)).blocked ?? 'the response was readable', /Failed to fetch/)
      assert.deepEqual(await (tab === ours ? responses(open, friend, friend) : responses(open, stranger)), said)
    }
    const sdk = { 'tonclient-core-version': '1.45.0', 'x-evernode-expected-account-boc-version': '1' }
    await readable(['GET 200'], byGet(open.url))
    await readable(['GET 200'], byGet(open.url)) // not from a cache
    await readable(['OPTIONS 204', 'POST 200'], open.url, post(json))
    await readable(['POST 200'], open.url, post(json)) // the response to the preflight is cached
    await readable(['OPTIONS 204', 'POST 200'], open.url, post({ ...json, ...basic(secret), ...sdk }))
    await blocked(ours, ['OPTIONS 204'], open.url, post({ ...json, 'x-other': '1' }))
    await blocked(ours, ['GET 200'], byGet(open.url), { credentials: 'include' })
    await blocked(theirs, ['GET 200'], byGet(open.url))
    await blocked(theirs, ['OPTIONS 204'], open.url, post(json))
    await blocked(theirs, ['POST 415'], open.url, post({ 'content-type': 'text/plain' })) // as a form could send it
    await open.end()

    const guarded = await webhost('-origin', friend, '-secret', secret)
    reads(await ours.ask(guarded.url, post({ ...json, ...basic(secret) })))
    const refusal = await ours.ask(guarded.url, post({ ...json, ...basic('wrong') }))
    assert.equal(refusal.status, 401)
    assert.equal(refusal.body.errors[0].message, 'Unauthorized access')
    await guarded.end()
    return `only the allowed origin can read responses, including errors (Chromium ${chromium})`
  }),
  sockets('subscriptions-transport-ws', /^Unauthorized access$/),
  sockets('graphql-ws', /^4403 /),
  caseOf('EventSource', async ({ friend, stranger, ours, theirs }) => {
    const host = await webhost('-origin', friend)
    const line = await proxy(host)
    await ours.listen('EventSource', line.place(host))
    const before = (await ours.upTo(5)).blocks.length
    line.cut()
    const { blocks, ids, opened } = await ours.upTo(before + 25) // blocks from during the interruption, and newer ones
    inARow(blocks)
    assert.deepEqual(ids, blocks.map((block) => block.chain_order))
    assert.equal(opened, 2)
    const [first, again] = await host.said()
    assert.equal(first, `GET ${friend} 200, readable by ${friend}`)
    assert.ok(ids.slice(before - 1).some((id) => again === `${first}, after ${id}`), again)
    line.close()

    await ours.listen('EventSource', host, {}, { query: version })
    assert.equal(await ours.end(), 'complete')
    await host.said()
    assert.equal(await refused(theirs, 'EventSource', host), 'error event')
    assert.deepEqual(await responses(host, stranger), ['GET 200'])
    await host.end()
    return `after a cut, it resumed by itself: ${blocks.length} blocks without a gap`
  }),
  caseOf('event streams and a secret', async ({ friend, stranger, ours, theirs }) => {
    const host = await webhost('-origin', friend, '-secret', secret)
    assert.equal(await refused(ours, 'EventSource', host), 'error event') // EventSource cannot send a secret
    await receivesBlocks(ours, 'graphql-sse', host, basic(secret))
    assert.match(await refused(ours, 'graphql-sse', host, basic('wrong')), /\b401\b/)
    assert.deepEqual(await responses(host, friend, friend), ['GET 401', 'OPTIONS 204', 'POST 200', 'POST 401'])
    await refused(theirs, 'graphql-sse', host, basic(secret))
    assert.deepEqual(await responses(host, stranger), ['OPTIONS 204'])
    await host.end()
    return 'EventSource is refused with 401, and graphql-sse receives blocks'
  }),
  caseOf("the host's own pages", async ({ stranger, pages, tab, theirs }) => {
    const host = await webhost('-pages', pages)
    const own = new URL(host.url).origin
    const mine = await tab(own)
    assert.equal((await mine.ask('/demo/graphql', post({ ...json, 'x-other': '1' }))).status, 200)
    assert.deepEqual(await responses(host, own), ['POST 200'])
    for (const way of everyWay) await receivesBlocks(mine, way, host)
    await host.said()
    for (const way of everyWay) await refused(theirs, way, host)
    assert.deepEqual(await responses(host, stranger), ['GET 403', 'GET 403', 'OPTIONS 204', 'GET 200'])
    await mine.close()
    await host.end()
    return `${everyWay.join(', ')} receive blocks, and pages of another origin are refused`
  }),
  caseOf('any origin', async ({ stranger, theirs }) => {
    const host = await webhost('-origin', '*')
    for (const way of everyWay) await receivesBlocks(theirs, way, host)
    assert.deepEqual(await responses(host, stranger, '*'), ['GET 101', 'GET 101', 'OPTIONS 204', 'POST 200', 'GET 200'])
    await host.end()
    return `${everyWay.join(', ')} receive blocks`
  }),
]

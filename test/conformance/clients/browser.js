// Chromium: the browser builds of the clients, EventSource and fetch, in pages
// of an origin that is allowed, of one that is not, and of the host's own.
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

// inARow checks that blocks come without a hole, and none twice.
function inARow(blocks) {
  blocks.forEach((block, i) => {
    assert.equal(block.seq_no, blocks[0].seq_no + i)
    assert.ok(i === 0 || block.chain_order > blocks[i - 1].chain_order, `block ${i + 1}`)
  })
}

async function hears(tab, way, host, credentials) {
  await tab.listen(way, host, credentials)
  inARow((await tab.upTo(5)).blocks)
}

// refused is what a page is told instead of blocks.
async function refused(tab, way, host, credentials) {
  await tab.listen(way, host, credentials)
  return tab.trouble()
}

// told is what a host has said since it was asked before, in the words
// "method status", where each was to a page of one origin, and readable by it
// or nobody.
async function told(host, origin, reader) {
  const line = new RegExp(`^(\\w+) ${origin} (\\d+)${reader ? `, readable by ${reader.replace('*', '\\*')}` : ''}$`)
  return (await host.said()).map((said) => said.replace(line, '$1 $2'))
}

// caseOf is one with a tab of an origin that is allowed, ours, and one of
// another, theirs.
const caseOf = (name, run) => ({
  name: `Chromium, ${name}`, phase: 'apart',
  run: () => onStage(async (stage) => {
    const [ours, theirs] = await Promise.all([stage.tab(stage.friend), stage.tab(stage.stranger)])
    const found = await run({ ...stage, ours, theirs })
    await Promise.all([ours.close(), theirs.close()])
    return found
  }),
})

// sockets is the case of a client that opens one.
const sockets = (way, unauthorized) => caseOf(way, async ({ friend, stranger, ours, theirs }) => {
  const open = await webhost('-origin', friend)
  await hears(ours, way, open)
  assert.deepEqual(await told(open, friend, friend), ['GET 101'])
  await refused(theirs, way, open)
  assert.deepEqual(await told(open, stranger), ['GET 403'])
  await open.end()

  const guarded = await webhost('-origin', friend, '-secret', secret)
  await hears(ours, way, guarded, basic(secret))
  for (const credentials of [basic('wrong'), {}]) assert.match(await refused(ours, way, guarded, credentials), unauthorized)
  assert.deepEqual(await told(guarded, friend, friend), ['GET 101', 'GET 101', 'GET 101'])
  await guarded.end()
  return 'blocks to an origin that is allowed, with the secret, and 403 to another'
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
      assert.deepEqual(await told(open, friend, friend), said)
    }
    const blocked = async (tab, said, to, init) => {
      assert.match((await tab.ask(to, init)).blocked ?? 'it was answered', /Failed to fetch/)
      assert.deepEqual(await (tab === ours ? told(open, friend, friend) : told(open, stranger)), said)
    }
    const sdk = { 'tonclient-core-version': '1.45.0', 'x-evernode-expected-account-boc-version': '1' }
    await readable(['GET 200'], byGet(open.url))
    await readable(['GET 200'], byGet(open.url)) // not out of a cache
    await readable(['OPTIONS 204', 'POST 200'], open.url, post(json))
    await readable(['POST 200'], open.url, post(json)) // the preflight is remembered
    await readable(['OPTIONS 204', 'POST 200'], open.url, post({ ...json, ...basic(secret), ...sdk }))
    await blocked(ours, ['OPTIONS 204'], open.url, post({ ...json, 'x-other': '1' }))
    await blocked(ours, ['GET 200'], byGet(open.url), { credentials: 'include' })
    await blocked(theirs, ['GET 200'], byGet(open.url))
    await blocked(theirs, ['OPTIONS 204'], open.url, post(json))
    await blocked(theirs, ['POST 415'], open.url, post({ 'content-type': 'text/plain' })) // as a form could
    await open.end()

    const guarded = await webhost('-origin', friend, '-secret', secret)
    reads(await ours.ask(guarded.url, post({ ...json, ...basic(secret) })))
    const refusal = await ours.ask(guarded.url, post({ ...json, ...basic('wrong') }))
    assert.equal(refusal.status, 401)
    assert.equal(refusal.body.errors[0].message, 'Unauthorized access')
    await guarded.end()
    return `answers, refusals too, are for the origin that is allowed (Chromium ${chromium})`
  }),
  sockets('subscriptions-transport-ws', /^Unauthorized access$/),
  sockets('graphql-ws', /^4403 /),
  caseOf('EventSource', async ({ friend, stranger, ours, theirs }) => {
    const host = await webhost('-origin', friend)
    const line = await proxy(host)
    await ours.listen('EventSource', line.place(host))
    const before = (await ours.upTo(5)).blocks.length
    line.cut()
    const { blocks, ids, opened } = await ours.upTo(before + 25) // those that came in between, and new ones
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
    assert.deepEqual(await told(host, stranger), ['GET 200'])
    await host.end()
    return `cut, it went on by itself: ${blocks.length} blocks without a hole`
  }),
  caseOf('event streams and a secret', async ({ friend, stranger, ours, theirs }) => {
    const host = await webhost('-origin', friend, '-secret', secret)
    assert.equal(await refused(ours, 'EventSource', host), 'error event') // it cannot show one
    await hears(ours, 'graphql-sse', host, basic(secret))
    assert.match(await refused(ours, 'graphql-sse', host, basic('wrong')), /\b401\b/)
    assert.deepEqual(await told(host, friend, friend), ['GET 401', 'OPTIONS 204', 'POST 200', 'POST 401'])
    await refused(theirs, 'graphql-sse', host, basic(secret))
    assert.deepEqual(await told(host, stranger), ['OPTIONS 204'])
    await host.end()
    return 'EventSource is refused with 401, graphql-sse gets blocks'
  }),
  caseOf("the host's own pages", async ({ stranger, pages, tab, theirs }) => {
    const host = await webhost('-pages', pages)
    const own = new URL(host.url).origin
    const mine = await tab(own)
    assert.equal((await mine.ask('/demo/graphql', post({ ...json, 'x-other': '1' }))).status, 200)
    assert.deepEqual(await told(host, own), ['POST 200'])
    for (const way of everyWay) await hears(mine, way, host)
    await host.said()
    for (const way of everyWay) await refused(theirs, way, host)
    assert.deepEqual(await told(host, stranger), ['GET 403', 'GET 403', 'OPTIONS 204', 'GET 200'])
    await mine.close()
    await host.end()
    return `all of ${everyWay.join(', ')}; those of another origin are refused`
  }),
  caseOf('any origin', async ({ stranger, theirs }) => {
    const host = await webhost('-origin', '*')
    for (const way of everyWay) await hears(theirs, way, host)
    assert.deepEqual(await told(host, stranger, '*'), ['GET 101', 'GET 101', 'OPTIONS 204', 'POST 200', 'GET 200'])
    await host.end()
    return `all of ${everyWay.join(', ')}`
  }),
]

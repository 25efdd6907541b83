// Runs the clients and the judges against the main program. A case has a name, a
// phase, and a function run, which returns a description of the result or throws.
// The phases are:
//
//   live     on a server that replays the recording; all cases start before its first block
//   guarded  on a server whose project demo requires a secret, in parallel with the live cases
//   read     afterwards, on the server that has replayed the recording
//   apart    in parallel with the read cases, on a separate server for each case
//   judge    at the end and one at a time, on a server whose chain does not grow
//
//	node run.js [words]
//
// If words are given, only the cases whose names contain one of them run.
import { setTimeout as sleep } from 'node:timers/promises'
import { casesOf } from './cases.js'
import { Chain, epoch, recording } from './chain.js'
import * as apollo from './clients/apollo.js'
import browser from './clients/browser.js'
import curl from './clients/curl.js'
import explorer from './clients/explorer.js'
import * as eventsource from './clients/eventsource.js'
import * as graphqlRequest from './clients/graphql-request.js'
import * as graphqlSSE from './clients/graphql-sse.js'
import * as graphqlWS from './clients/graphql-ws.js'
import * as relay from './clients/relay.js'
import shell from './clients/shell.js'
import * as subscriptionsTransport from './clients/subscriptions-transport-ws.js'
import * as urql from './clients/urql.js'
import wscat from './clients/wscat.js'
import judges from './judges.js'
import { said } from './listener.js'
import { build, host, serve } from './processes.js'

const adapters = [subscriptionsTransport, graphqlWS, graphqlSSE, apollo, urql, graphqlRequest, relay, eventsource].flatMap((client) => client.adapters)
const words = process.argv.slice(2)
const cases = [...adapters.flatMap(casesOf), ...subscriptionsTransport.cases, ...wscat, ...curl, ...shell, ...browser, ...explorer, ...judges]
  .filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)))
const rate = 200 // recorded blocks per second
const lead = 6 // seconds until the first recorded block; by then all clients must have subscribed
const usual = 40_000 // time limit of one case in milliseconds
const lanes = 6 // number of cases that run in parallel
const secret = 's3cret'

let number = 0
let passed = 0
let failed = 0

async function run({ name, run, patience = usual }, world) {
  const begin = performance.now()
  const seconds = () => `(${((performance.now() - begin) / 1000).toFixed(1)} s)`
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the case did not end within ${patience / 1000} s`)), patience)
  })
  try {
    const found = await Promise.race([run(world), late])
    passed++
    console.log(`ok ${++number} ${name}: ${found} ${seconds()}`)
  } catch (err) {
    failed++
    console.log(`not ok ${++number} ${name}: ${err?.stack ?? said(err)} ${seconds()}`)
  }
  clearTimeout(timer)
}

const phase = (...wanted) => cases.filter((c) => wanted.includes(c.phase))

// inLanes runs cases in parallel, but not more than lanes at a time, and starts them in their order.
async function inLanes(some, world) {
  const left = [...some]
  await Promise.all(Array.from({ length: lanes }, async () => {
    while (left.length > 0) await run(left.shift(), world)
  }))
}

// replayed waits until a server's chain contains a block. It is needed if no live case has run.
async function replayed({ url }, { chain_order }) {
  const body = JSON.stringify({ query: '{blockchain{blocks(last:1){edges{cursor}}}}' })
  for (;;) {
    const answer = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
    const [newest] = (await answer.json()).data.blockchain.blocks.edges
    if (newest?.cursor >= chain_order) return
    await sleep(100)
  }
}

const start = performance.now()
const seconds = () => ((performance.now() - start) / 1000).toFixed(1)
await build()
await Promise.all(adapters.map((adapter) => adapter.prepare?.()))
console.log(`built and prepared (${seconds()} s)`)

const file = recording('ton-mainnet-genesis')
const chain = new Chain(file)
const server = await serve('-chain', file.path, '-rate', String(rate), '-lead', `${lead}s`, '-epoch', epoch)
const guarded = await serve('-project', `demo=${secret}`)
await Promise.all([...phase('live').map((one) => run(one, { server, chain })), inLanes(phase('guarded'), { guarded, secret })])
await replayed(server, chain.at(chain.few))
await inLanes(phase('read', 'apart'), { server, chain })
await run({ name: 'server, SIGTERM', run: async () => (await Promise.all([server.stop(), guarded.stop()]), 'exit code 0') })

const still = await host(file.path, recording('ton-mainnet-2019-masterchain-accounts-by-block').path)
for (const one of phase('judge')) await run(one, { still })
await still.end()

console.log(`whole run ${seconds()} s`)
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed > 0 ? 1 : 0)

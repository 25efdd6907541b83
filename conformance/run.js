// Runs the clients against the main program. A case has a name, a phase and
// run, which returns what it found or throws.
//
//   live     on a server that replays the recording, from before its first block, all at the same time
//
// and then, these three beside each other, the cases of each in turn:
//
//   read     on the same server
//   guarded  on a server whose project demo needs a secret
//   apart    on servers of their own
import { Chain, recording } from './chain.js'
import curl from './clients/curl.js'
import shell from './clients/shell.js'
import subscriptionsTransport from './clients/subscriptions-transport-ws.js'
import wscat from './clients/wscat.js'
import { build, serve } from './processes.js'

const cases = [...subscriptionsTransport, ...wscat, ...curl, ...shell]
const rate = 200 // recorded blocks per second
const patience = 40_000 // milliseconds for one case
const secret = 's3cret'

let number = 0
let passed = 0
let failed = 0

async function run({ name, run }, world) {
  const begin = performance.now()
  const seconds = () => `(${((performance.now() - begin) / 1000).toFixed(1)} s)`
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not through after ${patience / 1000} s`)), patience)
  })
  try {
    const found = await Promise.race([run(world), late])
    passed++
    console.log(`ok ${++number} ${name}: ${found} ${seconds()}`)
  } catch (err) {
    failed++
    console.log(`not ok ${++number} ${name}: ${err?.stack ?? JSON.stringify(err)} ${seconds()}`)
  }
  clearTimeout(timer)
}

const phase = (wanted) => cases.filter((c) => c.phase === wanted)

async function inTurn(some, world) {
  for (const one of some) await run(one, world)
}

const start = performance.now()
await build()
console.log(`built the main program (${((performance.now() - start) / 1000).toFixed(1)} s)`)

const file = recording('ton-mainnet-genesis.json')
if (!file) console.log('the recorded chain is skipped: ../shared/realdata/ton-mainnet-genesis.json is not there; simulated blocks take its place')
const chain = new Chain(file)
const server = await serve(...(file ? ['-chain', file.path, '-rate', String(rate)] : []))
await Promise.all(phase('live').map((one) => run(one, { server, chain })))
const guarded = await serve('-project', `demo=${secret}`)
await Promise.all([
  inTurn(phase('read'), { server, chain }),
  inTurn(phase('guarded'), { guarded, secret }),
  inTurn(phase('apart'), {}),
])
await run({ name: 'server, SIGTERM', run: async () => (await Promise.all([server.stop(), guarded.stop()]), 'exit code 0') })

console.log(`whole run ${((performance.now() - start) / 1000).toFixed(1)} s`)
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed > 0 ? 1 : 0)

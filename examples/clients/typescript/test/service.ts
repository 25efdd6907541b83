// Runs the example server of chaingql with a recorded chain.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../../../../', import.meta.url))
const folder = mkdtempSync(join(tmpdir(), 'chaingql-client-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
const program = join(folder, 'server')
execFileSync('go', ['build', '-o', program, './examples/server'], { cwd: root, stdio: 'inherit' })

export interface Recorded {
  workchain: number
  shard: string
  seq_no: number
  hash: string
  gen_utime: number
  chain_order: string
}

/** Returns the blocks of a chain that consists of the masterchain and one shard. */
function chainOf(rounds: number): Recorded[] {
  const number = (n: number) => (n.toString(16).length - 1).toString(16) + n.toString(16)
  return Array.from({ length: rounds }, (_, i) => i + 1).flatMap((n) => [
    { workchain: 0, shard: '8000000000000000', seq_no: n, gen_utime: 1573822385 + n, chain_order: `${number(n)}00${number(n)}00`, hash: hash(0, n) },
    { workchain: -1, shard: '8000000000000000', seq_no: n, gen_utime: 1573822385 + n, chain_order: `${number(n)}m`, hash: hash(1, n) },
  ])
}

const hash = (kind: number, n: number) => `${kind}${n}`.padStart(64, '0')

export const blocks = chainOf(300)
export const account = { address: `-1:${'7'.repeat(64)}`, balance: '340282366920938463463374607431768211457', state_seq_no: 1 }

const files = { chain: join(folder, 'chain.json'), accounts: join(folder, 'accounts.json') }
writeFileSync(files.chain, JSON.stringify({ blocks }))
writeFileSync(files.accounts, JSON.stringify({ accounts: [account] }))

/** Finds an address for a server that restarts. Its port is outside the range from which the system assigns free ports. */
export async function free() {
  for (;;) {
    const listener = createServer()
    const port = 10_000 + Math.floor(Math.random() * 20_000)
    const found = await new Promise((resolve) => listener.on('error', () => resolve(false)).listen(port, '127.0.0.1', () => resolve(true)))
    if (!found) continue
    await new Promise((resolve) => listener.close(resolve))
    return `127.0.0.1:${port}`
  }
}

/** Starts the server. After three seconds, the server starts to append rate blocks per second. */
export async function serve(rate: number, address = '127.0.0.1:0') {
  const args = ['-addr', address, '-chain', files.chain, '-accounts', files.accounts, '-rate', String(rate), '-project', 'shop=s3cret']
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'ignore'] })
  const kill = () => child.kill('SIGKILL')
  process.on('exit', kill)
  const ended = once(child, 'exit')
  const greeting = once(createInterface({ input: child.stdout }), 'line')
  const line = await Promise.race([greeting.then(([first]) => String(first)), ended.then(() => '')])
  const url = /http:\/\/[^/]+/.exec(line)?.[0]
  if (url === undefined) throw new Error('The server did not start')
  return {
    url,
    async stop() {
      child.kill('SIGTERM')
      await ended
      process.off('exit', kill)
    },
  }
}

// Child processes, such as the main program. They are ended by their process ids
// when this process exits, for any reason.
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

export const here = fileURLToPath(new URL('.', import.meta.url))
export const root = join(here, '..', '..')

const running = new Set()
export const scratch = mkdtempSync(join(tmpdir(), 'chaingql-conformance-'))

process.on('exit', () => {
  for (const child of running) kill(child, 'SIGKILL')
  rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }) // killed processes may still be writing
})
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1))

// start starts a child process as the leader of a process group, so that the processes that it starts end with it.
export function start(command, args, options = {}) {
  const child = spawn(command, args, { detached: true, stdio: 'pipe', ...options })
  running.add(child)
  child.errors = ''
  child.stderr.setEncoding('utf8').on('data', (text) => (child.errors += text))
  child.stdin.on('error', () => {}) // the process ended before it had read everything
  child.ended = new Promise((resolve, reject) => {
    child.on('error', (err) => {
      running.delete(child)
      reject(err)
    })
    child.on('close', (code, signal) => {
      running.delete(child)
      resolve(code ?? signal)
    })
  })
  child.ended.catch(() => {}) // the code that waits for child.ended reports the error
  return child
}

function kill(child, signal) {
  try {
    process.kill(-child.pid, signal)
  } catch {} // the process has already ended
}

// end kills a child that cannot be stopped in another way.
export async function end(child) {
  kill(child, 'SIGKILL')
  await child.ended.catch(() => {})
}

// output runs a command, waits for its end, and returns its exit code and output.
export async function output(command, args, options) {
  const child = start(command, args, options)
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (text) => (stdout += text))
  child.stdin.end()
  return { code: await child.ended, stdout, stderr: child.errors }
}

const binary = join(scratch, 'server')

const hostBinary = join(scratch, 'host')
const webhostBinary = join(scratch, 'webhost')

export async function build() {
  const programs = [[binary, './examples/server', root], [hostBinary, '.', join(here, 'host')], [webhostBinary, '.', join(here, 'webhost')]]
  for (const [file, source, cwd] of programs) {
    const { code, stderr } = await output('go', ['build', '-o', file, source], { cwd })
    if (code !== 0) throw new Error(`go build failed:\n${stderr}`)
  }
}

// host serves a chain that does not grow: that of the files, or a simulated one.
export async function host(...files) {
  const child = start(hostBinary, files)
  const lines = createInterface({ input: child.stdout })
  const url = await new Promise((resolve, reject) => {
    child.ended.then((code) => reject(new Error(`host ended with ${code}: ${child.errors}`)), reject)
    lines.once('line', resolve)
  })
  return { url, end: () => end(child) }
}

// webhost starts a server for web pages, with a chain that grows.
export async function webhost(...args) {
  const child = start(webhostBinary, args)
  const lines = []
  const url = await new Promise((resolve, reject) => {
    child.ended.then((code) => reject(new Error(`webhost ended with ${code}: ${child.errors}`)), reject)
    createInterface({ input: child.stdout }).on('line', (line) => lines.push(line)).once('line', resolve)
  })
  lines.shift()
  return {
    url,
    socket: url.replace('http:', 'ws:'),
    address: new URL(url).host,
    // said returns the lines that the server has logged for responses since the last call.
    async said() {
      await fetch(url, { method: 'HEAD' }) // pages send no HEAD request, so the lines before that of this request are complete
      for (;;) {
        const last = lines.findIndex((line) => line.startsWith('HEAD'))
        if (last >= 0) return lines.splice(0, last + 1).slice(0, -1)
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    },
    end: () => end(child),
  }
}

// free finds an unused address for a server that is restarted there. Its port is not in the range from which the
// system assigns ports automatically.
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

// serve starts the main program on a free port, or on the address in args.
export async function serve(...args) {
  const child = start(binary, args.includes('-addr') ? args : ['-addr', '127.0.0.1:0', ...args])
  child.stdin.end()
  const greeting = []
  const url = await new Promise((resolve, reject) => {
    child.ended.then((code) => reject(new Error(`server ended with ${code}: ${child.errors}`)), reject)
    createInterface({ input: child.stdout }).on('line', (line) => {
      greeting.push(line)
      if (line.startsWith('npx ')) resolve(greeting[0].replace('serving on ', ''))
    })
  })
  return {
    url,
    greeting,
    socket: url.replace('http:', 'ws:'),
    address: new URL(url).host,
    // stop ends the server with SIGTERM and checks its exit code.
    async stop() {
      kill(child, 'SIGTERM')
      const late = setTimeout(kill, 15_000, child, 'SIGKILL') // after the server's own deadline
      const code = await child.ended
      clearTimeout(late)
      if (code !== 0) throw new Error(`server ended with ${code} on SIGTERM: ${child.errors}`)
    },
  }
}

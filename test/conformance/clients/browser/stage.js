// Chromium, and two web servers with the same page, which therefore has two origins.
import assert from 'node:assert/strict'
import { copyFileSync, existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join } from 'node:path'
import { createInterface } from 'node:readline'
import { chromium } from 'playwright-core'
import { blocks } from '../../documents.js'
import { end, here, scratch, start } from '../../processes.js'

const program = '/usr/bin/chromium'
const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync', '--disable-breakpad', '--no-startup-window', '--remote-debugging-port=0',
]

const sources = {
  'index.html': 'clients/browser/page.html',
  'page.js': 'clients/browser/page.js',
  'subscriptions-transport-ws.js': 'node_modules/subscriptions-transport-ws/browser/client.js',
  'graphql-ws.js': 'node_modules/graphql-ws/umd/graphql-ws.js',
  'graphql-sse.js': 'node_modules/graphql-sse/umd/graphql-sse.js',
}
const types = { '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8' }

let shared
let players = 0

// onStage runs a case with the stage: a browser and two web servers. Concurrent
// cases share a stage, and the last of them closes it.
export async function onStage(play) {
  players++
  shared ??= raise()
  const stage = shared
  try {
    return await play(await stage)
  } finally {
    if (--players === 0) {
      shared = undefined
      await stage.then(({ close }) => close(), () => {}) // if the stage failed to start, play has reported the error
    }
  }
}

async function raise() {
  const { browser, child } = await launch()
  const pages = mkdtempSync(join(scratch, 'pages-'))
  for (const [name, source] of Object.entries(sources)) copyFileSync(join(here, source), join(pages, name))
  const [friend, stranger] = await Promise.all([serve(pages), serve(pages)])
  return {
    version: browser.version(),
    pages,
    friend: friend.origin,
    stranger: stranger.origin,
    tab: (origin) => Tab.open(browser, origin),
    window: (options) => browser.newContext(options), // a context without data of other contexts
    async close() {
      await browser.close()
      await end(child)
      friend.close()
      stranger.close()
    },
  }
}

// launch starts Chromium as a child process, with a new profile.
async function launch() {
  assert.ok(existsSync(program), `Chromium is not installed: there is no ${program}. On Debian: apt-get install chromium`)
  const home = mkdtempSync(join(scratch, 'chromium-'))
  const child = start(program, [...flags, `--user-data-dir=${home}`], { env: { ...process.env, HOME: home, TMPDIR: scratch } })
  const address = await new Promise((resolve, reject) => {
    child.ended.then((code) => reject(new Error(`Chromium ended with ${code}: ${child.errors}`)), reject)
    createInterface({ input: child.stderr }).on('line', (line) => {
      const [, address] = /^DevTools listening on (.*)$/.exec(line) ?? []
      if (address) resolve(address)
    })
  })
  return { child, browser: await chromium.connectOverCDP(address, { artifactsDir: home }) }
}

async function serve(pages) {
  const server = createServer(({ url }, response) => {
    const name = url === '/' ? 'index.html' : url.slice(1)
    if (!(name in sources)) return response.writeHead(404).end()
    response.writeHead(200, { 'content-type': types[extname(name)] }).end(readFileSync(join(pages, name)))
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

// A Tab is a page of an origin in a browser context of its own.
class Tab {
  static async open(browser, origin) {
    const tab = new Tab(await browser.newPage())
    await tab.page.goto(`${origin}/`)
    return tab
  }

  constructor(page) {
    Object.assign(this, { page, faults: [] })
    page.setDefaultTimeout(15_000)
    page.on('pageerror', (err) => this.faults.push(err))
  }

  ask(url, init) {
    return this.page.evaluate(([url, init]) => ask(url, init), [url, init])
  }

  // listen subscribes. It ends the previous subscription of the page.
  listen(way, { url, socket }, credentials, operation = { query: blocks }) {
    return this.page.evaluate(([way, options]) => listen(way, options), [way, { url, socket, credentials, operation }])
  }

  // upTo waits for count blocks and returns everything that the subscription has received.
  async upTo(count) {
    const state = await this.page.waitForFunction((count) => (heard.trouble || heard.blocks.length >= count) && heard, count)
    const { trouble, ...rest } = await state.jsonValue()
    assert.equal(trouble, undefined, `after ${rest.blocks.length} of ${count} blocks: ${trouble}`)
    return rest
  }

  // end waits until the subscription has ended and returns the reason.
  async end() {
    return (await this.page.waitForFunction(() => heard.trouble)).jsonValue()
  }

  // trouble waits for the error that the subscription receives instead of blocks.
  async trouble() {
    const state = await this.page.waitForFunction(() => (heard.trouble || heard.blocks.length > 0) && heard)
    const { blocks, opened, trouble } = await state.jsonValue()
    assert.equal(blocks.length + opened, 0, 'the subscription was accepted')
    return trouble
  }

  async close() {
    await this.page.evaluate(() => leave?.())
    await this.page.close()
    assert.deepEqual(this.faults, [], 'errors that the page did not catch')
  }
}

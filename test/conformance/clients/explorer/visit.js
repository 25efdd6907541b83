// Functions that the cases of the explorer share.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { onStage } from '../browser/stage.js'

// A Visit is a visit to one page. The page must send requests only to its origin,
// must write nothing to the console, and must not violate its content policy.
export class Visit {
  said = []
  asked = new Set()

  static async to(page, url) {
    const visit = new Visit()
    visit.page = page
    page.setDefaultTimeout(30_000)
    page.on('pageerror', (err) => visit.said.push(`${err}`))
    page.on('console', (line) => visit.said.push(line.text()))
    page.on('request', (request) => visit.asked.add(new URL(request.url()).origin))
    page.on('websocket', (socket) => visit.asked.add(new URL(socket.url()).origin.replace('ws:', 'http:')))
    await page.addInitScript(() => {
      window.refused = []
      window.messages = [] // messages of WebSockets that the page has received
      window.WebSocket = class extends WebSocket {
        constructor(...where) {
          super(...where)
          this.addEventListener('message', ({ data }) => window.messages.push(JSON.parse(data)))
        }
      }
      document.addEventListener('securitypolicyviolation', (event) => window.refused.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`))
    })
    await page.goto(url)
    visit.origin = new URL(url).origin
    return visit
  }

  // end checks the rules for each visit and closes the page. noise matches console messages that are allowed,
  // because Chromium writes them when a connection is lost.
  async end(noise = /^never$/) {
    assert.deepEqual(await this.page.evaluate(() => window.refused), [], 'violations of the content policy')
    assert.deepEqual(this.said.filter((line) => !noise.test(line)), [], 'messages on the console')
    assert.deepEqual([...this.asked], [this.origin], 'origins to which the page sent requests')
    await this.page.context().close()
  }

  // use submits the form with a project and a secret.
  use(project, secret, keep = false) {
    return this.page.getByRole('form', { name: 'Access to the API' }).evaluate((form, [project, secret, keep]) => {
      Object.assign(form.elements.project, { value: project })
      Object.assign(form.elements.secret, { value: secret })
      if (form.elements.keep.checked !== keep) form.elements.keep.click()
      form.requestSubmit()
    }, [project, secret, keep])
  }

  // kept returns everything that the browser has stored.
  kept() {
    return this.page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]))
  }

  // blocks returns the blocks that the page has received through WebSockets.
  blocks() {
    return this.page.evaluate(() => window.messages.filter(({ type }) => type === 'next').map(({ payload }) => payload.data.blocks))
  }

  // GraphiQL

  async ready() {
    await this.page.locator('.graphiql-query-editor .view-lines').first().waitFor()
    await this.page.waitForFunction(() => window.__MONACO?.editor.getModels().some((model) => model.uri.path.includes('response')))
  }

  tab(name) {
    return this.page.getByRole('tab', { name }).click()
  }

  run() {
    return this.page.locator('.graphiql-execute-button').click()
  }

  edit(name, text) {
    return this.page.evaluate(([name, text]) => window.__MONACO.editor.getModels().find((model) => model.uri.path.includes(name)).setValue(text), [name, text])
  }

  // answer waits for a response that contains text, and returns it.
  async answer(text) {
    const response = await this.page.waitForFunction((text) => {
      const value = window.__MONACO.editor.getModels().find((model) => model.uri.path.includes('response')).getValue()
      return value.includes(text) && value
    }, text)
    return JSON.parse(await response.jsonValue())
  }

  // the live view

  state(pattern) {
    return this.page.waitForFunction(([source]) => new RegExp(source).test(document.querySelector('#state').textContent), [pattern.source])
  }

  count(id) {
    return this.page.locator(`#${id}`).textContent().then(Number)
  }

  // received waits until the page shows that it has received at least that many blocks.
  received(least) {
    return this.page.waitForFunction((least) => Number(document.querySelector('#received').textContent) >= least, least)
  }
}

// caseOf returns a case that uses the browser. It passes run a function that opens a page in a new window.
export const caseOf = (name, run) => ({
  name: `explorer, ${name}`, phase: 'apart', patience: 120_000,
  run: () => onStage(async ({ window }) => run(async (url, options) => Visit.to(await (await window(options)).newPage(), url))),
})

export const home = ({ url }) => new URL('/', url).href
export const live = ({ url }) => new URL('/live', url).href

export function inARow(blocks) {
  assert.deepEqual(blocks.map(({ seq_no }) => seq_no), blocks.map((_, i) => blocks[0].seq_no + i))
}

// grown waits until the chain of a host has some more blocks.
export async function grown({ url }, some) {
  const height = async () => {
    const body = JSON.stringify({ query: '{blockchain{blocks(last:1){edges{node{seq_no}}}}}' })
    const answer = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
    return (await answer.json()).data.blockchain.blocks.edges[0]?.node.seq_no ?? 0
  }
  for (const goal = (await height()) + some; (await height()) < goal; ) await sleep(100)
}

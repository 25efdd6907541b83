// GraphiQL, and its handling of secrets.
import assert from 'node:assert/strict'
import { serve, webhost } from '../../processes.js'
import { proxy } from '../../proxy.js'
import { caseOf, home, inARow, live } from './visit.js'

const secret = 's3cret'
const unauthorized = 'Unauthorized access: the project or its secret is wrong.'

export default [
  caseOf('queries', async (visit) => {
    const server = await serve()
    const there = await visit(home(server))
    await there.ready()
    await there.page.getByText('A GraphQL schema provides a root type').waitFor() // the documentation has been loaded
    await there.page.locator('.graphiql-query-editor .monaco-editor').first().click()
    await there.page.keyboard.press('Control+Enter')
    const { data } = await there.answer('seq_no')
    assert.match(data.blockchain.blocks.edges[0].node.hash, /^[0-9a-f]{64}$/)
    await there.tab('balance')
    await there.run()
    const balance = await there.answer('balance')
    assert.equal(balance.data.blockchain.account.info.balance, '1000000000') // the balance of the account in the greeting
    await there.tab('service')
    await there.run()
    await there.answer('"version"')
    await there.page.getByLabel('Show History').click()
    for (const name of ['latestBlocks', 'balance', 'service']) await there.page.locator('.graphiql-history').getByText(name).first().waitFor()
    await there.page.getByLabel('Show Documentation Explorer').click()
    await there.page.getByRole('link', { name: 'Subscription' }).click()
    await there.page.getByText('BlockFilter').waitFor()
    await there.edit('operation', '{ nonsense }')
    await there.page.waitForFunction(() => window.__MONACO.editor.getModelMarkers({}).some(({ message }) => /nonsense/.test(message))) // reported by the worker of the editor
    await there.page.getByLabel(/^Prettify/).click()
    await there.page.waitForFunction(() => window.__MONACO.editor.getModels().some((model) => model.getValue().trim() === '{\n  nonsense\n}'))
    await there.end()
    await server.stop()
    return 'documentation, history, blocks and a balance, all from the origin of the page'
  }),
  caseOf('a subscription', async (visit) => {
    const host = await webhost()
    const there = await visit(`${home(host)}tools/explorer/`) // under a path
    await there.ready()
    await there.tab('liveBlocks')
    await there.run()
    const seen = []
    while (seen.length < 5) {
      const { data: { blocks } } = await there.answer('seq_no')
      if (blocks.seq_no !== seen.at(-1)?.seq_no) seen.push(blocks)
    }
    inARow(await there.blocks())
    await there.run() // the button now stops the subscription
    const [last] = seen.slice(-1)
    await there.edit('variables', JSON.stringify({ after: last.cursor }))
    await there.run()
    await there.page.waitForFunction(() => {
      const types = window.messages.map(({ type }) => type)
      return types.lastIndexOf('connection_ack') > 0 && types.length > types.lastIndexOf('connection_ack') + 5
    })
    const blocks = await there.blocks()
    const after = blocks.slice(blocks.findLastIndex(({ seq_no }) => seq_no === last.seq_no + 1))
    assert.ok(after.length >= 5, `received ${after.length} blocks after the last one, want at least 5`)
    inARow(after)
    await there.page.getByRole('link', { name: 'Live' }).click()
    await there.state(/^Live/)
    await there.end()
    await host.end()
    return 'five consecutive blocks over graphql-transport-ws, a stop, and the blocks after the last one'
  }),
  ...[
    ['a lost connection of a subscription', 'cut', 'an error is shown, and the subscription is not restarted without the missed blocks'],
    ['a subscription on a silent connection', 'hold', 'pings detect it, and an error is shown'],
  ].map(([name, lose, found]) => caseOf(name, async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(home(line.place(host)))
    await there.ready()
    await there.tab('liveBlocks')
    await there.run()
    await there.answer('seq_no')
    line[lose]()
    const { errors } = await there.answer('errors')
    assert.equal(errors[0].message, 'The line to the server is lost.')
    await there.end()
    line.close()
    await host.end()
    return found
  })),
  caseOf('a subscription on a connection that is slower than the blocks', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(home(line.place(host)))
    await there.ready()
    line.slow(/^Upgrade: websocket/im)
    await there.tab('liveBlocks')
    await there.run()
    await there.page.waitForFunction(() => window.messages.length > 25, undefined, { timeout: 40_000 }) // its pongs are late
    inARow(await there.blocks())
    await there.answer('seq_no')
    await there.end()
    line.close()
    await host.end()
    return 'the connection is not treated as lost'
  }),
  caseOf('a subscription that is stopped during its handshake', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(home(line.place(host)))
    const stop = there.page.getByLabel(/^Stop query/)
    await there.ready()
    await there.tab('liveBlocks')
    line.hold(/^Upgrade: websocket/im)
    line.cut()
    const caught = line.caught()
    await there.run()
    await caught
    await stop.click()
    line.free()
    await there.run()
    await there.answer('seq_no')
    while (there.said.length === 0) await there.page.waitForTimeout(100) // until the first connection has been closed
    await there.page.waitForTimeout(500)
    await stop.click()
    await there.end(/WebSocket is closed before the connection is established/)
    line.close()
    await host.end()
    return 'it does not end the next subscription'
  }),
  caseOf('in a browser without storage', async (visit) => {
    const host = await webhost()
    const there = await visit('about:blank')
    await there.page.addInitScript(() => {
      for (const place of ['localStorage', 'sessionStorage']) {
        Object.defineProperty(window, place, { get() { throw new DOMException('denied', 'SecurityError') } })
      }
    })
    await there.page.goto(home(host))
    await there.ready()
    await there.run()
    await there.answer('seq_no')
    await there.page.getByRole('link', { name: 'Live' }).click()
    await there.state(/^Live/)
    assert.deepEqual(there.said, [])
    await there.page.context().close()
    await host.end()
    return 'both pages work without storage'
  }),
  caseOf('secrets', async (visit) => {
    const server = await serve('-project', `demo=${secret}`)
    const there = await visit(home(server))
    const noise = /status of 401/
    await there.ready()
    for (const wrong of ['', 'wrong']) {
      await there.use('demo', wrong)
      for (const tab of ['latestBlocks', 'liveBlocks']) {
        await there.tab(tab)
        await there.edit('response', '')
        await there.run()
        const { errors } = await there.answer('errors')
        assert.match(errors[0].message, /^Unauthorized access/)
      }
    }
    await there.use('demo', secret)
    await there.page.getByText('A GraphQL schema provides a root type').waitFor() // the schema is loaded again
    for (const tab of ['latestBlocks', 'liveBlocks']) {
      await there.tab(tab)
      await there.run()
      await there.answer('seq_no')
    }
    await there.run()
    const header = `Basic ${btoa(`:${secret}`)}`
    const nothingKept = async () => {
      const kept = await there.kept()
      assert.match(kept, /latestBlocks/)
      for (const word of [secret, header, header.slice(6)]) assert.ok(!kept.includes(word), `${word} in ${kept}`)
    }
    await nothingKept()
    await there.use('demo', '')
    for (const tab of ['latestBlocks', 'liveBlocks']) {
      await there.tab(tab)
      await there.edit('request-headers', JSON.stringify({ authorization: header }))
      await there.page.waitForTimeout(1000) // GraphiQL applies it after a delay
      await there.run()
      await there.answer('seq_no')
    }
    await there.run()
    await there.page.waitForTimeout(1000) // GraphiQL stores it after a delay, too
    await nothingKept()
    await there.use('demo', secret, true)
    assert.deepEqual(JSON.parse(await there.page.evaluate(() => sessionStorage.getItem('chaingql:access'))), { project: 'demo', secret })
    await there.page.goto(live(server))
    await there.state(/^Live/)
    await there.use('demo', 'wrong')
    await there.state(/^Unauthorized/)
    assert.equal(await there.page.locator('#state').textContent(), unauthorized)
    assert.ok(!(await there.kept()).includes(secret))
    await there.use('', secret) // an empty project means demo
    await there.state(/^Live/)
    await there.use('nobody', secret)
    await there.state(/^Unauthorized/)
    await there.use('demo', secret)
    await there.state(/^Live/)
    await there.end(noise)
    await server.stop()
    return 'both pages report wrong secrets; right ones are stored only on request, and only in the tab'
  }),
]

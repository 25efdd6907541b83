// The live view, with connections and servers that fail.
import assert from 'node:assert/strict'
import { serve, webhost } from '../../processes.js'
import { proxy } from '../../proxy.js'
import { caseOf, grown, inARow, live } from './visit.js'

export default [
  caseOf('the live view, lost connections', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(live(line.place(host)))
    const context = there.page.context()
    await there.state(/^Live/)
    await there.received(5)
    line.cut() // the connection can be opened again immediately
    await there.state(/^Live\. Resumed with \d+ blocks? caught up; none was missed\.$/)
    assert.equal(await there.count('lost'), 1)
    await there.received(12)
    await context.setOffline(true)
    line.cut() // the browser is offline for some seconds
    await there.state(/^The .*(lost|reached).* Trying again, to go on behind block -1:8000000000000000:\d+\.$/)
    await grown(host, 15)
    await context.setOffline(false)
    await there.state(/^Live\. Resumed with \d{2,} blocks caught up; none was missed\.$/)
    await there.received(await there.count('received') + 20)
    const caught = await there.count('caught')
    assert.ok(caught >= 10, `the page caught up ${caught} blocks, want at least 10`)
    await there.page.getByRole('button', { name: 'Pause the display' }).click() // does not change while it is compared
    assert.equal(await there.page.locator('tbody tr').count(), 10)
    const received = await there.count('received')
    const blocks = await there.blocks()
    assert.ok(blocks.length >= received && received > 0, `received ${blocks.length} blocks, but the page shows ${received}`)
    inARow(blocks)
    assert.deepEqual([await there.count('missed'), await there.count('lost')], [0, 2])
    await there.end(/ERR_INTERNET_DISCONNECTED|WebSocket connection to/)
    line.close()
    await host.end()
    return `${blocks.length} consecutive blocks over three connections, ${caught} of them caught up`
  }),
  caseOf('the live view, a silent connection', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(live(line.place(host)))
    await there.state(/^Live/)
    await there.received(5)
    const balance = () => there.page.locator('#balance-at').textContent()
    await there.page.getByRole('button', { name: 'Watch' }).click()
    await there.page.waitForFunction(() => document.querySelector('#balance-at').textContent.includes('after block'))
    line.hold()
    await there.state(/^The line to the server is lost\. Trying again/)
    const before = await balance()
    await there.state(/^The server does not answer\. Trying again/)
    line.free()
    await there.state(/^Live\. Resumed with \d+ blocks caught up; none was missed\.$/)
    assert.equal(await there.count('missed'), 0)
    while ((await balance()) === before) await there.page.waitForTimeout(100) // the balance is queried again, too
    await there.end(/WebSocket connection to/)
    line.close()
    await host.end()
    return 'pings detect it, requests time out, and the page resumes'
  }),
  caseOf('the live view, a handshake without a response', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(live(line.place(host)))
    await there.state(/^Live/)
    await there.received(5)
    line.hold(/^Upgrade: websocket/im)
    const caught = line.caught()
    line.cut()
    await there.state(/^The line to the server is lost\. Trying again/)
    await caught // the next handshake has started
    line.free()
    await there.state(/^Live\. Resumed with \d+ blocks caught up; none was missed\.$/)
    await there.end(/WebSocket connection to/)
    line.close()
    await host.end()
    return 'it starts another handshake'
  }),
  caseOf('the live view, STREAM_GAP before the stored blocks', async (visit) => {
    const host = await webhost()
    const there = await visit('about:blank')
    let reported
    await there.page.routeWebSocket(/graphql$/, (socket) => {
      const server = socket.connectToServer()
      let id, over
      socket.onMessage((frame) => {
        const message = JSON.parse(frame)
        if (message.type === 'subscribe') ({ id } = message)
        server.send(frame)
      })
      server.onMessage((frame) => {
        if (over) return
        over = !reported && JSON.parse(frame).type === 'next'
        if (!over) return socket.send(frame)
        reported = true
        socket.send(JSON.stringify({ id, type: 'error', payload: [{ message: 'a gap', extensions: { code: 'STREAM_GAP', cursor: '' } }] }))
      })
    })
    await grown(host, 5)
    await there.page.goto(live(host))
    await there.state(/^Live/)
    await there.received(9)
    await there.page.getByRole('button', { name: 'Pause the display' }).click()
    assert.ok((await there.blocks())[0].seq_no > 1, 'no blocks were stored before the page was opened')
    await there.page.waitForFunction(() => { // blocks continue to arrive
      const numbers = window.messages.filter(({ type }) => type === 'next').map(({ payload }) => payload.data.blocks.seq_no)
      const came = numbers.slice(numbers.indexOf(1)) // older messages belong to the subscription that the page has replaced
      return Number(document.querySelector('#received').textContent) === came.length && came.every((number, i) => number === i + 1)
    })
    await there.page.context().close()
    await host.end()
    return 'it counts all received blocks, and none twice'
  }),
  caseOf('the live view, STREAM_GAP, SERVICE_UNAVAILABLE and CURSOR_TOO_OLD', async (visit) => {
    const host = await webhost()
    const there = await visit('about:blank')
    const errors = { 5: (seen) => ({ code: 'STREAM_GAP', cursor: seen[1] }), 10: (seen) => ({ code: 'STREAM_GAP', cursor: seen.at(-1) + suffix }), 15: () => ({ code: 'SERVICE_UNAVAILABLE' }), 16: () => ({ code: 'CURSOR_TOO_OLD' }) }
    const suffix = '!5.k3v9q0tma1b2c3d' // only the server that reported the gap accepts it
    const subscribed = []
    const seen = []
    let count = 0
    await there.page.routeWebSocket(/graphql$/, (socket) => {
      const server = socket.connectToServer()
      let id, over
      socket.onMessage((frame) => {
        const message = JSON.parse(frame)
        if (message.type === 'subscribe') {
          id = message.id
          subscribed.push(message.payload.variables.after)
        }
        server.send(frame.replace(suffix, ''))
      })
      server.onMessage((frame) => {
        if (over) return
        const { type, payload } = JSON.parse(frame)
        if (type === 'next' && errors[++count]) {
          over = true
          const extensions = errors[count](seen)
          return socket.send(JSON.stringify({ id, type: 'error', payload: [{ message: extensions.code, extensions }] }))
        }
        if (type === 'next') seen.push(payload.data.blocks.chain_order)
        socket.send(frame)
      })
    })
    await there.page.goto(live(host))
    await there.received(9)
    assert.equal(subscribed[1], seen[1]) // the cursor of the second of four blocks
    const numbers = await there.page.locator('tbody tr td:first-child').allTextContents()
    numbers.forEach((number, i) => assert.equal(Number(number), numbers[0] - i))
    await there.state(/^Live\. The blocks since the line was lost are no longer kept\. It starts over\.$/)
    await there.received(14)
    assert.deepEqual([await there.count('missed'), subscribed.length], [0, 5])
    assert.ok(subscribed[2].endsWith(suffix), `the page resumed from ${subscribed[2]}, want the cursor of the gap`)
    await there.page.context().close()
    await host.end()
    return 'it resumes or starts over, and shows no block twice'
  }),
  caseOf('the live view, two missing blocks', async (visit) => {
    const host = await webhost()
    const there = await visit('about:blank')
    let blocks = 0
    await there.page.routeWebSocket(/graphql$/, (socket) => {
      const server = socket.connectToServer()
      server.onMessage((frame) => {
        if (JSON.parse(frame).type !== 'next' || ![4, 5].includes(++blocks)) socket.send(frame)
      })
    })
    await there.page.goto(live(host))
    await there.received(5)
    assert.equal(await there.count('missed'), 2)
    await there.page.context().close()
    await host.end()
    return 'it shows that two blocks are missing'
  }),
  caseOf('the live view, a balance after several blocks at once', async (visit) => {
    const host = await webhost()
    const there = await visit('about:blank')
    const held = []
    let send
    await there.page.routeWebSocket(/graphql$/, (socket) => {
      send = (frame) => socket.send(frame)
      socket.connectToServer().onMessage((frame) => (JSON.parse(frame).type === 'next' ? held.push(frame) : send(frame)))
    })
    await there.page.goto(live(host))
    await there.page.getByRole('button', { name: 'Watch' }).click()
    await there.page.getByText('0.000000000').waitFor()
    while (held.length < 3) await there.page.waitForTimeout(100)
    const some = held.slice()
    for (const frame of some) send(frame)
    const { seq_no } = JSON.parse(some.at(-1)).payload.data.blocks
    await there.page.getByText(`after block -1:${seq_no}`).waitFor()
    await there.page.context().close()
    await host.end()
    return 'it shows the balance after the last of them'
  }),
  caseOf('the live view, another chain', async (visit) => {
    const host = await webhost()
    const line = await proxy(host)
    const there = await visit(live(line.place(host)))
    await there.page.waitForFunction(() => Number(document.querySelector('td')?.textContent) > 30)
    const server = await serve()
    line.turn(server)
    line.cut()
    await there.state(/^Live\. The chain has begun anew\. It starts over\.$/)
    await there.page.getByText('Workchain 0', { exact: true }).waitFor()
    assert.equal(await there.count('missed'), 0)
    await there.end(/WebSocket connection to/)
    line.close()
    await Promise.all([host.end(), server.stop()])
    return 'it starts over'
  }),
  ...[
    ['a replaced chain', undefined],
    ['STREAM_GAP before the chain is replaced', 5],
  ].map(([name, gap]) => caseOf(`the live view, ${name}`, async (visit) => {
    const replacement = await serve('-epoch', 'new')
    const server = await serve('-epoch', 'old')
    const line = await proxy(server)
    const there = await visit('about:blank')
    const seen = []
    const replace = () => {
      line.turn(replacement)
      line.cut()
    }
    await there.page.routeWebSocket(/graphql$/, (socket) => {
      const upstream = socket.connectToServer()
      let id
      socket.onMessage((frame) => {
        id = JSON.parse(frame).id ?? id
        upstream.send(frame)
      })
      upstream.onMessage((frame) => {
        const { type, payload } = JSON.parse(frame)
        if (type === 'next' && seen.push(payload.data.blocks) === gap) {
          socket.send(JSON.stringify({ id, type: 'error', payload: [{ message: 'a gap', extensions: { code: 'STREAM_GAP', cursor: `${seen[1].chain_order}~old` } }] }))
          replace()
        } else socket.send(frame)
      })
    })
    await there.page.goto(live(line.place(server)))
    await there.state(/^Live/)
    await grown(replacement, 8) // so that cursors of the old chain are positions in the new one
    if (gap === undefined) replace()
    await there.state(/^Live\. The chain was replaced\. It starts over\.$/)
    await there.received(3)
    assert.equal(await there.count('missed'), 0)
    await there.page.context().close()
    line.close()
    await Promise.all([server.stop(), replacement.stop()])
    return 'it discards the blocks of the old chain'
  })),
  caseOf('the live view, keyboard navigation', async (visit) => {
    const server = await serve()
    const there = await visit(live(server))
    await there.state(/^Live/)
    await there.received(1)
    await there.page.locator('tbody tr').first().waitFor()
    const focused = []
    const { keyboard } = there.page
    const step = async () => {
      await keyboard.press('Tab')
      const [name, outline] = await there.page.evaluate(() => {
        const element = document.activeElement
        return [element.name || element.textContent.trim(), getComputedStyle(element).outlineStyle]
      })
      focused.push(name)
      assert.equal(outline, 'solid', `${name} does not show that it has the focus`)
      return name
    }
    while ((await step()) !== 'Pause the display');
    await keyboard.press('Space')
    const rows = () => there.page.locator('tbody tr').first().textContent()
    await there.page.getByRole('button', { pressed: true }).waitFor()
    const before = [await rows(), await there.count('received')]
    await there.received(before[1] + 4)
    assert.equal(await rows(), before[0])
    await keyboard.press('Space')
    await step()
    await keyboard.press('Enter') // the address of the example
    await there.page.getByText('1.000000000').waitFor()
    const after = () => there.page.locator('#balance-at').textContent()
    const first = await after()
    while ((await after()) === first) await there.page.waitForTimeout(100) // it is queried again when blocks arrive
    await keyboard.type('nowhere')
    await keyboard.press('Enter')
    await there.page.getByText('Invalid account address').waitFor()
    assert.deepEqual(focused, ['Explorer', 'Live', 'project', 'secret', 'keep', 'Use', 'Pause the display', 'address'])
    for (let i = 0; i < 7; i++) await keyboard.press('Shift+Tab')
    await keyboard.press('Enter')
    await there.ready()
    await there.end()
    await server.stop()
    return `focus order: ${focused.join(', ')}`
  }),
]

// The explorer's pages in Chromium, used like a person uses them.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Lines } from '../../../explorer/web/src/lines.js'
import { here, serve } from '../processes.js'
import graphiql from './explorer/graphiql.js'
import livePage from './explorer/live.js'
import { caseOf, home, live } from './explorer/visit.js'
import { titled } from './package.js'

const axe = readFileSync(join(here, 'node_modules/axe-core/axe.min.js'), 'utf8')

// audit returns the problems that axe-core finds in a page.
async function audit(page) {
  const found = await page.evaluate(`${axe}; axe.run()`)
  assert.ok(found.passes.length > 10, 'axe-core checked almost nothing')
  return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, any }) => `${html.slice(0, 160)} ${any[0]?.message ?? ''}`).join(' | ')}`)
}

export default [
  ...graphiql,
  ...livePage,
  caseOf(`both pages, checked by ${titled('axe-core')}`, async (visit) => {
    const server = await serve()
    const faults = []
    for (const colorScheme of ['light', 'dark']) {
      for (const viewport of [{ width: 1280, height: 800 }, { width: 390, height: 844 }]) {
        const there = await visit(live(server), { colorScheme, viewport })
        await there.state(/^Live/)
        await there.received(3)
        await there.page.getByRole('button', { name: 'Watch' }).click()
        await there.page.getByText('1.000000000').waitFor()
        faults.push(...await audit(there.page))
        const scrollWidth = await there.page.evaluate(() => document.documentElement.scrollWidth)
        assert.ok(scrollWidth <= viewport.width, `the page is ${scrollWidth} pixels wide, but the screen only ${viewport.width}`)
        await there.end()
        const first = await visit(home(server), { colorScheme, viewport })
        await first.ready()
        await first.run()
        await first.answer('seq_no')
        faults.push(...(await audit(first.page)).filter((fault) => !fault.startsWith('nested-interactive'))) // GraphiQL's tabs contain buttons
        if (viewport.width > 1000) { // the documentation is shown next to the query
          await first.page.route(/graphql$/, (route) => route.fulfill({ json: { errors: [{ message: 'no schema' }] } }))
          await first.page.getByLabel('Re-fetch GraphQL schema').click()
          await first.page.getByText('Error fetching schema').waitFor()
          faults.push(...(await audit(first.page)).filter((fault) => !fault.startsWith('nested-interactive')))
        }
        await first.end(/no schema/)
      }
    }
    assert.deepEqual(faults, [])
    await server.stop()
    return 'no problems in light and dark mode, on a desktop and a phone'
  }),
  {
    name: 'explorer, counts of missing blocks', phase: 'read',
    run() {
      const lines = new Lines()
      const [whole, left, right] = ['8000000000000000', '4000000000000000', 'c000000000000000']
      const story = [
        [whole, 7, 0], [whole, 8, 0], [left, 9, 0], [right, 9, 0], [left, 10, 0], [whole, 11, 0], // a split and a merge
        [left, 12, 0], [right, 12, 0], [right, 15, 2], [left, 13, 0], [whole, 17, 1], ['1000000000000000', 3, 0],
      ]
      for (const [shard, seq_no, missing] of story) assert.equal(lines.add({ workchain_id: 0, shard, seq_no }), missing, `${shard} ${seq_no}`)
      assert.equal(lines.add({ workchain_id: -1, shard: whole, seq_no: 100 }), 0)
      return 'missing blocks are counted correctly at splits and merges'
    },
  },
]

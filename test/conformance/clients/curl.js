// curl: it reads the chain page by page, reads balances, and sends credentials.
import assert from 'node:assert/strict'
import { cursorOf, recording } from '../chain.js'
import { output, serve } from '../processes.js'

const node = 'id hash seq_no workchain_id shard gen_utime chain_order'

async function curl(url, ...args) {
  const { code, stdout, stderr } = await output('curl', ['-sS', '--max-time', '10', '-w', '\n%{http_code}', url, ...args])
  assert.equal(code, 0, `curl: ${stderr}`)
  const end = stdout.lastIndexOf('\n')
  return { status: Number(stdout.slice(end + 1)), body: JSON.parse(stdout.slice(0, end)) }
}

function post(url, query, variables, ...args) {
  return curl(url, '-H', 'Content-Type: application/json', '-d', JSON.stringify({ query, variables }), ...args)
}

// ask sends a query by the method QUERY of RFC 10008.
function ask(url, query, variables, ...args) {
  return post(url, query, variables, '-X', 'QUERY', ...args)
}

// headers returns the status and the header of the response to a QUERY.
async function headers(url, query, type, ...args) {
  const body = JSON.stringify({ query })
  const { code, stdout, stderr } = await output('curl', ['-sS', '--max-time', '10', '-D', '-', '-o', '/dev/null', '-X', 'QUERY',
    '-H', `Content-Type: ${type}`, '-d', body, url, ...args])
  assert.equal(code, 0, `curl: ${stderr}`)
  const [line, ...lines] = stdout.trim().split('\r\n')
  return { status: Number(line.split(' ')[1]), header: new Headers(lines.map((l) => l.split(/: (.*)/, 2))) }
}

function get(url, query, variables, ...args) {
  return curl(url, '-G', '--data-urlencode', `query=${query}`, '--data-urlencode', `variables=${JSON.stringify(variables)}`, ...args)
}

// page reads one page and checks that its fields are consistent.
async function page(ask, url, variables) {
  const { status, body } = await ask(url, `query($w:Int $s:String $first:Int $after:String $last:Int $before:String){blockchain{
    blocks(workchain:$w shard:$s first:$first after:$after last:$last before:$before){
      edges{cursor node{${node}}} pageInfo{startCursor endCursor hasNextPage hasPreviousPage}}}}`, variables)
  assert.equal(status, 200)
  assert.equal(body.errors, undefined, JSON.stringify(body.errors))
  const { edges, pageInfo } = body.data.blockchain.blocks
  const blocks = edges.map(({ cursor, node: { hash, ...rest } }) => {
    assert.equal(rest.id, `block/${hash}`)
    assert.equal(cursor, cursorOf(rest))
    return { ...rest, id: hash }
  })
  assert.equal(pageInfo.startCursor, cursorOf(blocks[0]))
  assert.equal(pageInfo.endCursor, cursorOf(blocks.at(-1)))
  return { blocks, ...pageInfo }
}

async function forwards(url, first, where = {}, ask = post) {
  const all = []
  for (let after; ;) {
    const p = await page(ask, url, { ...where, first, after })
    all.push(...p.blocks)
    assert.equal(p.hasPreviousPage, false)
    if (!p.hasNextPage) return all
    assert.equal(p.blocks.length, first)
    after = p.endCursor
  }
}

async function backwards(url, last, where = {}) {
  const all = []
  for (let before; ;) {
    const p = await page(post, url, { ...where, last, before })
    all.unshift(...p.blocks)
    assert.equal(p.hasNextPage, false)
    if (!p.hasPreviousPage) return all
    assert.equal(p.blocks.length, last)
    before = p.startCursor
  }
}

// balances checks the balance of each address in both formats, 15 addresses per query.
async function balances(url, newest) {
  const addresses = [...newest.keys()]
  while (addresses.length > 0) {
    const some = addresses.splice(0, 15)
    const fields = some.map((a, i) => `a${i}:account(address:"${a}"){info{id address dec:balance(format:DEC) hex:balance}}`)
    const { body } = await post(url, `{blockchain{${fields.join(' ')}}}`)
    assert.equal(body.errors, undefined, JSON.stringify(body.errors))
    some.forEach((address, i) => {
      const dec = newest.get(address)
      assert.deepEqual(body.data.blockchain[`a${i}`].info,
        { id: `account/${address}`, address, dec, hex: `0x${BigInt(dec).toString(16)}` })
    })
  }
}

function newestBalances(file) {
  const rows = file.accounts.toSorted((a, b) => a.state_seq_no - b.state_seq_no)
  return new Map(rows.map((row) => [row.address, row.balance]))
}

const masterchain = (b) => b.workchain_id === -1
const basechain = (b) => b.workchain_id === 0

export default [
  {
    name: 'curl, first 50 after', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 50)),
  },
  {
    name: 'curl, first 7 after', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 7)),
  },
  {
    name: 'curl, first 50 after by GET', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 50, {}, get)),
  },
  {
    name: 'curl, first 50 after by QUERY', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 50, {}, ask)),
  },
  {
    name: 'curl, QUERY with an ETag', phase: 'read',
    async run({ server: { url } }) {
      const [query, json] = ['{__typename}', 'application/json']
      const { status, header } = await headers(url, query, json)
      assert.equal(status, 200)
      assert.equal(header.get('cache-control'), 'public, no-cache')
      const tag = header.get('etag')
      assert.equal((await headers(url, query, json, '-H', `If-None-Match: ${tag}`)).status, 304)
      assert.equal((await headers(url, '{t:__typename}', json, '-H', `If-None-Match: ${tag}`)).status, 200)
      const refused = await headers(url, query, 'text/plain')
      assert.equal(`${refused.status} ${refused.header.get('accept-query')}`, '415 application/json')
      return '304 for the same query only, and Accept-Query'
    },
  },
  {
    name: 'curl, last 50 before', phase: 'read',
    run: async ({ server, chain }) => chain.check(await backwards(server.url, 50)),
  },
  {
    name: 'curl, last 7 before', phase: 'read',
    run: async ({ server, chain }) => chain.check(await backwards(server.url, 7)),
  },
  {
    name: 'curl, masterchain forwards', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 50, { w: -1 }), masterchain),
  },
  {
    name: 'curl, masterchain backwards', phase: 'read',
    run: async ({ server, chain }) => chain.check(await backwards(server.url, 50, { w: -1 }), masterchain),
  },
  {
    name: 'curl, workchain 0 forwards', phase: 'read',
    run: async ({ server, chain }) => chain.check(await forwards(server.url, 50, { w: 0 }), basechain),
  },
  {
    name: 'curl, workchain 0 backwards', phase: 'read',
    run: async ({ server, chain }) => chain.check(await backwards(server.url, 50, { w: 0 }), basechain),
  },
  {
    name: 'curl, one shard', phase: 'read',
    run: async ({ server, chain }) => {
      const { shard } = chain.tips.find(basechain)
      return chain.check(await forwards(server.url, 50, { w: 0, s: shard }), (b) => basechain(b) && b.shard === shard)
    },
  },
  {
    name: 'curl, balances', phase: 'apart',
    run: async () => {
      let accounts = 0
      const files = ['ton-mainnet-2019-masterchain-accounts-by-block', 'everscale-mainnet-2020-08-20-accounts']
      for (const name of files) {
        const file = recording(name)
        const server = await serve('-accounts', file.path)
        const newest = newestBalances(file)
        await balances(server.url, newest)
        await server.stop()
        accounts += newest.size
      }
      return `the balances of ${accounts} accounts from ${files.length} files`
    },
  },
  {
    name: 'curl, credentials', phase: 'guarded',
    run: async ({ guarded: { url }, secret }) => {
      const query = '{info{version}}'
      const right = [['-u', `:${secret}`], ['-H', `Authorization: Basic ${btoa(`:${secret}`)}`]]
      for (const args of right) {
        for (const ask of [post, get]) {
          const { status, body } = await ask(url, query, {}, ...args)
          assert.equal(status, 200)
          assert.match(body.data.info.version, /^[0-9.]+$/)
        }
      }
      const wrong = [[], ['-u', ':wrong'], ['-u', `demo:${secret}`], ['-H', `Authorization: Bearer ${secret}`], ['-H', 'Authorization: Basic !']]
      const unknown = url.replace('/demo/', '/nobody/')
      for (const [where, args] of [...wrong.map((args) => [url, args]), [unknown, []], [unknown, right[0]]]) {
        const { status, body } = await post(where, query, {}, ...args)
        assert.equal(status, 401, `${where} ${args}`)
        assert.deepEqual(body, { errors: [{ message: 'Unauthorized access', extensions: { code: 'UNAUTHENTICATED' } }] })
      }
      return `right credentials are accepted, ${wrong.length + 2} wrong ones are refused with 401`
    },
  },
]

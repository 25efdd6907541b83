// A comparison with graphql-js 17. Random requests are sent to the server and to the
// reference. Both must refuse the same requests, return the same data, byte for byte,
// and return errors with the same paths and locations. Errors of documents must also
// have the same texts, without suggestions. graphql-js 16 is asked, too, whether a
// document is valid: where both versions agree, the server must agree with both.
//
//	node judges/oracle.js URL [--seed 1] [--documents 4000] [--modern]
//
// The server's chain must not grow. That of ./host does not.
import { pathToFileURL } from 'node:url'
import { parseArgs } from 'node:util'
import { readChain } from './oracle/chain.js'
import { agree, show } from './oracle/compare.js'
import { request } from './oracle/documents.js'
import { everything, Reference } from './oracle/reference.js'
import { resolves } from './oracle/resolvers.js'
import { Sixteen } from './oracle/sixteen.js'
import { http, legacy, modern } from './oracle/transports.js'

const atOnce = 8

export async function oracle(url, { seed = 1, documents = 4000, transports = [http, legacy], log = console.log } = {}) {
  const ask = async (query) => {
    const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ query }) })
    return (await response.json()).data
  }
  const introspection = await ask(everything)
  const chain = await readChain(ask, introspection)
  const reference = new Reference(introspection, chain)
  const sixteen = new Sixteen(introspection)
  const lines = await Promise.all(transports.map(async (t) => ({ name: t.name, line: await t.open(url) })))
  const count = { documents, refused: 0, 'with field errors': 0, streams: 0, 'without errors': 0, 'valid in only one version of graphql-js': 0 }
  let differences = 0
  let next = 0

  async function work() {
    while (next < documents) {
      const i = next++
      const asked = request(reference.schema, chain, seed, i, resolves)
      const want = await reference.answer(asked)
      count[want.refused ? 'refused' : want.stream ? 'streams' : want.errors.length > 0 ? 'with field errors' : 'without errors']++
      if (sixteen.valid(asked.query) === (want.fixed === true)) count['valid in only one version of graphql-js']++
      for (const { name, line } of lines) {
        const got = await line.answer(asked, want.stream).catch((err) => ({ error: String(err) }))
        if (agree(want, got)) continue
        differences++
        log(`${name}, seed ${seed}, document ${i}\n${asked.query}\nvariables ${asked.variables}, operationName ${asked.operationName}\ngraphql-js: ${show(want)}\nserver:     ${show(got)}\n`)
      }
    }
  }
  await Promise.all(Array.from({ length: atOnce }, work))
  for (const { line } of lines) line.close()
  log(`seed ${seed}: ${Object.entries(count).map(([what, n]) => `${n} ${what}`).join(', ')}, over ${lines.map((l) => l.name).join(' and ')}; chain of ${chain.blocks.length} blocks`)
  return { passed: documents * lines.length - differences, failed: differences }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { seed: { type: 'string', default: '1' }, documents: { type: 'string', default: '4000' }, modern: { type: 'boolean', default: false } },
  })
  const transports = [http, legacy, ...(values.modern ? [modern] : [])]
  const { passed, failed } = await oracle(positionals[0], { seed: Number(values.seed), documents: Number(values.documents), transports })
  console.log(`${passed} passed, ${failed} failed`)
  process.exit(failed > 0 ? 1 : 0)
}

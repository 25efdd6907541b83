// Relay: relay-compiler compiles the documents against the SDL. The runtime
// queries with fetch and subscribes with graphql-ws.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import * as documents from '../documents.js'
import { here, output, root, scratch } from '../processes.js'
import { client as socketClient } from './graphql-ws.js'
import { titled } from './package.js'

const { Environment, fetchQuery, Network, Observable, RecordSource, requestSubscription, Store } = createRequire(import.meta.url)('relay-runtime')

const compiled = new Map() // compiled documents by their text

async function prepare() {
  const folder = join(scratch, 'relay')
  const artifacts = join(folder, 'artifacts')
  mkdirSync(artifacts, { recursive: true })
  const texts = Object.values(documents)
  writeFileSync(join(folder, 'chain.js'), texts.map((text) => `graphql\`${text}\`\n`).join('\n'))
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}')
  writeFileSync(join(folder, 'schema.graphql'), readFileSync(join(root, 'testdata/schema.graphql')))
  writeFileSync(join(folder, 'relay.config.json'), JSON.stringify({
    src: '.', schema: 'schema.graphql', language: 'javascript', artifactDirectory: 'artifacts', eagerEsModules: true,
  }))
  const { code, stdout, stderr } = await output(join(here, 'node_modules/.bin/relay-compiler'), [], { cwd: folder })
  if (code !== 0) throw new Error(`relay-compiler: ${stdout}${stderr}`)
  for (const text of texts) {
    const [, name] = /^\w+ (\w+)/.exec(text)
    const artifact = await import(pathToFileURL(join(artifacts, `${name}.graphql.js`)))
    compiled.set(text, artifact.default)
  }
}

function open(place, options) {
  const { credentials, fetch = globalThis.fetch } = options
  const sockets = socketClient(place, options)
  const network = Network.create(
    async ({ text, name }, variables) => {
      const response = await fetch(place.url, {
        method: 'POST', headers: { 'content-type': 'application/json', ...credentials },
        body: JSON.stringify({ query: text, operationName: name, variables }),
      })
      const answer = await response.json()
      if (answer.errors) throw Object.assign(new Error(`${response.status}`), { errors: answer.errors })
      return answer
    },
    ({ text, name }, variables) => Observable.create((sink) => sockets.subscribe({ query: text, operationName: name, variables }, sink)),
  )
  const environment = new Environment({ network, store: new Store(new RecordSource()) })
  return {
    ask: ({ query, variables = {} }) => fetchQuery(environment, compiled.get(query), variables).toPromise(),
    listen({ query, variables = {} }, { next, error, complete }) {
      const subscription = requestSubscription(environment, {
        subscription: compiled.get(query), variables, onNext: next, onError: error, onCompleted: complete,
      })
      return () => subscription.dispose()
    },
    close: () => sockets.dispose(),
  }
}

export const adapters = [
  { name: titled('relay-runtime'), protocol: 'graphql-transport-ws', onCut: 'repeats', compiled: true, fetches: true, prepare, open },
]

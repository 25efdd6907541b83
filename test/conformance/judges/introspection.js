// The schema as third-party tools see it. graphql-js must be able to build and
// validate it from introspection, it must be equal to the SDL, and the types that
// graphql-codegen generates for it must compile.
//
//	node judges/introspection.js URL [schema.graphql]
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { codegen } from '@graphql-codegen/core'
import * as typescript from '@graphql-codegen/typescript'
import * as operations from '@graphql-codegen/typescript-operations'
import { buildClientSchema, buildSchema, lexicographicSortSchema, parse, printSchema, validate, validateSchema } from 'graphql'
import * as seventeen from 'graphql-17'
import { everything } from './oracle/reference.js'

const sdlFile = fileURLToPath(new URL('../../../testdata/schema.graphql', import.meta.url))
const tsc = join(dirname(createRequire(import.meta.url).resolve('typescript/package.json')), 'bin', 'tsc')

// Documents as users of clients write them.
const documents = [
  'query balance($address: String!, $format: BigIntFormat) { blockchain { account(address: $address) { info { id address balance(format: $format) } } } }',
  `query page($first: Int, $after: String, $workchain: Int) { blockchain { blocks(first: $first, after: $after, workchain: $workchain) {
     edges { cursor node { ...block ... on Node { id } } } pageInfo { endCursor hasNextPage } } } }
   fragment block on BlockchainBlock { hash seq_no workchain_id shard gen_utime chain_order }`,
  'subscription blocks($filter: BlockFilter) { blocks(filter: $filter) { id seq_no workchain_id shard gen_utime chain_order } }',
]

// Uses of the generated types that must compile, and uses that must not.
const uses = `
const filter: BlocksSubscriptionVariables = { filter: { workchain_id: { in: [-1, 0] }, OR: { seq_no: { ge: 1 } } } }
const balance: BalanceQueryVariables = { address: 'a' }
const next = (page: PageQuery): boolean | undefined => page.blockchain?.blocks?.pageInfo.hasNextPage
const cursor = (page: PageQuery): string | undefined => page.blockchain?.blocks?.edges[0]?.cursor
const number = (result: BlocksSubscription): number | null | undefined => result.blocks?.seq_no
// @ts-expect-error a list of strings is not a list of integers
const wrong: BlocksSubscriptionVariables = { filter: { workchain_id: { in: ['a'] } } }
// @ts-expect-error the address is required
const missing: BalanceQueryVariables = {}
export { filter, balance, next, cursor, number, wrong, missing }
`

const cases = {
  'the schema is valid': ({ schema }) => assert.deepEqual(validateSchema(schema), []),

  'everything has a description'({ introspection: { types, directives } }) {
    const described = (what, { name, description, fields, inputFields, enumValues, args }) => {
      assert.ok(description, `${what}${name} has no description`)
      for (const part of [...(fields ?? []), ...(inputFields ?? []), ...(enumValues ?? []), ...(args ?? [])]) described(`${what}${name}.`, part)
    }
    for (const type of types) if (!type.name.startsWith('__')) described('', type)
    for (const directive of directives) described('@', directive)
  },

  'graphql-js 17 accepts the schema': ({ introspection }) => {
    assert.deepEqual(seventeen.validateSchema(seventeen.buildClientSchema({ __schema: introspection })), [])
  },

  // graphql-js 17 also implements drafts: directives can be deprecated, and fragments have variables.
  'introspection matches the specification of September 2025'({ introspection: { types, directives } }) {
    for (const type of seventeen.introspectionTypes) {
      const own = types.find((t) => t.name === type.name)
      assert.ok(own, `${type.name} is missing`)
      const known = type.getFields?.() ?? Object.fromEntries(type.getValues().map((v) => [v.name, {}]))
      const drafts = { __Directive: ['isDeprecated', 'deprecationReason'], __DirectiveLocation: ['DIRECTIVE_DEFINITION', 'FRAGMENT_VARIABLE_DEFINITION'] }[type.name] ?? []
      const names = Object.keys(known).filter((name) => !drafts.includes(name))
      assert.deepEqual((own.fields ?? own.enumValues).map((f) => f.name), names, type.name)
      for (const field of own.fields ?? []) {
        assert.equal(written(field.type), String(known[field.name].type), `${type.name}.${field.name}`)
        if (`${type.name}.${field.name}` !== '__Schema.directives') sameArguments(field.args, known[field.name].args, `${type.name}.${field.name}`)
      }
    }
    for (const { name, args } of seventeen.specifiedDirectives) {
      const own = directives.find((d) => d.name === name)
      assert.ok(own, `@${name} is missing`)
      sameArguments(own.args, args, `@${name}`)
      assert.ok(!own.locations.includes('DIRECTIVE_DEFINITION'), `@${name} is allowed on directives`)
    }
  },

  'the SDL and introspection are equal'({ schema, sdl }) {
    if (!existsSync(sdl)) return `skipped: there is no ${sdl}`
    const sorted = (s) => printSchema(lexicographicSortSchema(s))
    assert.equal(sorted(schema), sorted(buildSchema(readFileSync(sdl, 'utf8'))))
  },

  async 'graphql-codegen and tsc accept it'({ schema }) {
    const parsed = documents.map((text) => ({ location: 'documents.graphql', document: parse(text) }))
    for (const { document } of parsed) assert.deepEqual(validate(schema, document), [])
    // Both plugins generate the input types, so each has its own file.
    const types = await generate(schema, [], { typescript })
    const requests = await generate(schema, parsed, { operations })
    const folder = mkdtempSync(join(tmpdir(), 'chaingql-codegen-'))
    const files = ['types.ts', 'requests.ts'].map((name) => join(folder, name))
    try {
      writeFileSync(files[0], types)
      writeFileSync(files[1], requests + uses)
      execFileSync(process.execPath, [tsc, '--strict', '--noEmit', '--target', 'es2022', '--module', 'esnext', ...files], { encoding: 'utf8' })
    } catch (err) {
      throw new Error(`tsc: ${err.stdout ?? err}`)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
}

function generate(schema, documents, pluginMap) {
  const plugins = Object.keys(pluginMap).map((name) => ({ [name]: {} }))
  return codegen({ filename: 'api.ts', schema: parse(printSchema(schema)), documents, config: { strictScalars: true }, plugins, pluginMap })
}

// sameArguments compares names, types and default values.
function sameArguments(own, known, of) {
  const declared = ({ name, type, default: value }) => `${name}: ${type}${value ? ` = ${JSON.stringify(value.value ?? value)}` : ''}`
  assert.deepEqual(own.map((a) => `${a.name}: ${written(a.type)}${a.defaultValue ? ` = ${a.defaultValue}` : ''}`), known.map(declared), of)
}

function written({ kind, name, ofType }) {
  if (kind === 'NON_NULL') return `${written(ofType)}!`
  return kind === 'LIST' ? `[${written(ofType)}]` : name
}

export async function introspection(url, { sdl = sdlFile, log = console.log } = {}) {
  const response = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ query: everything }) })
  const { data, errors } = await response.json()
  assert.equal(errors, undefined)
  const world = { schema: buildClientSchema(data), introspection: data.__schema, sdl }
  let passed = 0
  let failed = 0
  for (const [name, run] of Object.entries(cases)) {
    try {
      const note = await run(world)
      passed++
      log(`${name}${note ? `: ${note}` : ''}`)
    } catch (err) {
      failed++
      log(`NOT ${name}: ${err.message}`)
    }
  }
  return { passed, failed }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [url, sdl] = process.argv.slice(2)
  const { passed, failed } = await introspection(url, { sdl })
  console.log(`${passed} passed, ${failed} failed`)
  process.exit(failed > 0 ? 1 : 0)
}

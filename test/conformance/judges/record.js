// Records what graphql-js 17 answers, for the Go tests of internal/plan, which run without Node.js:
//
//	graphql-js-errors.jsonl.gz   the errors of parse and validate for the tests' schema: of the documents in
//	                             graphql-js-documents.txt, of unlikely documents and of random ones
//	graphql-js-tokens.jsonl.gz   the tokens that its lexer reads, or its error
//
// Each line is one document. The documents are always the same, so a recording changes only with the schema, the
// documents or graphql-js.
//
//	node judges/record.js
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { buildSchema, Lexer, Source } from 'graphql-17'
import { request } from './oracle/documents.js'
import { oddities } from './oracle/oddities.js'
import { Random } from './oracle/random.js'
import { check, forgetDrafts } from './oracle/reference.js'

const folder = fileURLToPath(new URL('../../../internal/plan/testdata/', import.meta.url))
forgetDrafts()
const schema = buildSchema(readFileSync(`${folder}schema.graphql`, 'utf8'))

// Only the words in strings depend on the chain.
const hash = '0'.repeat(64)
const block = { id: hash, hash, shard: '8000000000000000', chain_order: '00' }
const chain = { blocks: [block], balances: new Map([[`0:${hash}`, '0x1']]) }

const write = (name, lines) => writeFileSync(folder + name, gzipSync(lines.map((line) => `${JSON.stringify(line)}\n`).join(''), { level: 9 }))

// The locations of an error are pairs of line and column.
const described = ({ message, locations }) => ({ message, at: (locations ?? []).map(({ line, column }) => [line, column]) })

function documents() {
  const written = readFileSync(`${folder}graphql-js-documents.txt`, 'utf8').split('\n').filter(Boolean)
  const random = Array.from({ length: 6000 }, (_, i) => request(schema, chain, 17, oddities.length + i).query)
  return [...new Set([...written, ...oddities.map(({ query }) => query), ...random])]
}

const parts = [
  '{', '}', '(', ')', '[', ']', ':', '=', '!', '$', '@', '|', '&', '...', '.', '..', '?', '\\', "'", '%', '\u0000', '\u001f', '\u007f', 'é', '😀', '\u2028', '\ufeff', '\ufdd1', '\u00a0',
  ' ', ' ', ' ', '\n', '\r', '\r\n', '\t', ',', '# comment\n', '#é😀\r', '#', '#\u0001\n',
  'a', 'on', 'null', 'true', 'query', '_1', 'Abc', '0', '-0', '00', '1', '12', '-', '-1', '1.5', '.5', '1.', '1e3', '1E-3', '1e', '1.5e+', '1.2.3', '0x1', '1a', '1_', '-a', '01',
  '""', '"a"', '"é"', '"😀"', '"\u0001"', '"\ufdd1"', '"\\ufdd1"', '"\\u0041"', '"\\u{41}"', '"\\u{1F600}"', '"\\u{110000}"', '"\\u{}"', '"\\u{D800}"', '"\\u{000000041}"', '"\\u{00000041}"', '"\\u{4g}"', '"\\u{FFFFFFFF}"',
  '"\\uD83D\\uDE00"', '"\\uD83D"', '"\\uDE00"', '"\\uD83Dx"', '"\\u12"', '"\\u12g4"', '"\\n\\t\\"\\\\\\/\\b\\f\\r"', '"\\x"', '"\\', '"\\u', '"\\😀"', '"a', '"', '"a\nb"', '"a\rb"', '"a\tb"', '"\u007f"', '"\\u{😀}"',
  '""""""', '"""a"""', '"""', '"""a', '""""a"""', '"""a""""', '"""a"" """', '"""\\""" """', '"""\n  a\n    b\n"""', '"""\r\n\ta\r\n\r\n\tb\r"""', '"""é😀"""', '"""\u0001"""', '"""a""""""b"""', '"""  \n \n"""', '"""x\n  😀""" "y"', '"""\\u0041"""', '"""\\"""',
]

function stream(i) {
  const random = new Random(23, i)
  const glue = random.pick(['', '', ' ', '\n'])
  return Array.from({ length: 1 + random.below(6) }, () => random.pick(parts)).join(glue)
}

function tokensOf(text) {
  const lexer = new Lexer(new Source(text))
  const tokens = []
  try {
    do {
      const { kind, value, line, column } = lexer.advance()
      tokens.push([kind, value ?? '', line, column])
    } while (tokens.at(-1)[0] !== '<EOF>')
    return { text, tokens }
  } catch (err) {
    return { text, tokens, error: described(err) }
  }
}

const streams = [...new Set([...parts, ...Array.from({ length: 1600 }, (_, i) => stream(i))])]
const texts = documents()
write('graphql-js-errors.jsonl.gz', texts.map((text) => ({ text, errors: check(schema, text).errors.map(described) })))
write('graphql-js-tokens.jsonl.gz', streams.map(tokensOf))
console.log(`recorded ${texts.length} documents and ${streams.length} token streams`)

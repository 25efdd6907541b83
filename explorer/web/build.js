// Builds the pages' scripts and styles out of src and the packages that the lock
// file pins, into ../assets; or, with --check, only compares them with what is
// there.
//
//	node build.js [--check]
//
// Each file is kept packed, as browsers take it, under a name with the hash of
// what is in it.
import { build } from 'esbuild'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { gunzipSync, gzipSync } from 'node:zlib'
import { licences } from './licences.js'

const here = fileURLToPath(new URL('.', import.meta.url))
const folder = join(here, '..', 'assets')
const check = process.argv.includes('--check')

const options = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  format: 'esm',
  target: ['chrome111', 'firefox114', 'safari16.4'],
  charset: 'utf8',
  legalComments: 'none', // they are in LICENSES.txt
  define: { 'process.env.NODE_ENV': '"production"' },
  loader: { '.ttf': 'file', '.svg': 'copy' },
  outdir: '/',
  entryNames: '[name]-[hash]',
  chunkNames: '[name]-[hash]',
  assetNames: '[name]-[hash]',
  metafile: true,
  write: false,
  logLevel: 'warning',
}

// The workers go first: the explorer is told their names.
const workers = await build({
  ...options,
  entryPoints: {
    editor: 'monaco-editor/esm/vs/editor/editor.worker.js',
    graphql: 'monaco-graphql/esm/graphql.worker.js',
    json: 'monaco-editor/esm/vs/language/json/json.worker.js',
  },
})
const named = Object.fromEntries(workers.outputFiles.map(({ path }) => [basename(path).split('-')[0], basename(path)]))

const explorer = await build({
  ...options,
  entryPoints: ['src/explorer.jsx'],
  splitting: true,
  jsx: 'automatic',
  alias: { // GraphiQL asks for the forms that have nothing but a default export
    'prettier/parser-babel': 'prettier/plugins/babel',
    'prettier/parser-graphql': 'prettier/plugins/graphql',
  },
  define: { ...options.define, WORKERS: JSON.stringify(named) },
})
// Styles of what is loaded late are in the page's own already.
explorer.outputFiles = explorer.outputFiles.filter(({ path }) => !path.endsWith('.css') || basename(path).startsWith('explorer-'))

const live = await build({ ...options, entryPoints: ['src/live.js', 'src/icon.svg'] })

const builds = [workers, explorer, live]
const files = new Map(builds.flatMap(({ outputFiles }) => outputFiles).map(({ path, contents }) => [`${basename(path)}.gz`, Buffer.from(contents)]))
const used = builds.flatMap(({ metafile }) => Object.values(metafile.outputs).flatMap(({ inputs }) => Object.keys(inputs)))
files.set('LICENSES.txt', Buffer.from(licences(here, used)))

// Versions of node pack differently: what counts is what is in a file.
const packed = (name) => name.endsWith('.gz')
const kept = (name) => packed(name) ? gunzipSync(readFileSync(join(folder, name))) : readFileSync(join(folder, name))

mkdirSync(folder, { recursive: true })
const differing = [...files].filter(([name, contents]) => !existsSync(join(folder, name)) || !kept(name).equals(contents)).map(([name]) => name)
const left = readdirSync(folder).filter((name) => !files.has(name))
if (check) {
  for (const name of differing) console.log(`${name} is not as it is built`)
  for (const name of left) console.log(`${name} is not built any more`)
  console.log(`${files.size} files compared`)
  process.exit(differing.length + left.length > 0 ? 1 : 0)
}
for (const name of left) rmSync(join(folder, name))
for (const name of differing) writeFileSync(join(folder, name), packed(name) ? gzipSync(files.get(name), { level: 9 }) : files.get(name))

const sizes = [...files].filter(([name]) => packed(name)).sort().map(([name, { length }]) => [name, length, readFileSync(join(folder, name)).length])
for (const [name, plain, size] of sizes) console.log(`${name}: ${plain} bytes, packed ${size}`)
const sum = (i) => sizes.reduce((all, one) => all + one[i], 0)
console.log(`all: ${sum(1)} bytes, packed ${sum(2)}`)

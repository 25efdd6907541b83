// The licences of the packages that are in what was built.
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'

const packageOf = /^(?:.*\/)?node_modules\/((?:@[^/]+\/)?[^/]+)\//

// licences is the text of all, given the files that were used.
export function licences(root, used) {
  const folders = new Set(used.map((file) => packageOf.exec(file)?.[0]).filter(Boolean))
  const texts = [...folders].sort().map((folder) => one(join(root, folder)))
  return `What the explorer's pages are made of, beside its own source.\n${[...new Set(texts)].join('')}`
}

function one(folder) {
  const { name, version, license, repository } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  const source = typeof repository === 'string' ? repository : repository?.url ?? ''
  const text = readdirSync(folder).filter((file) => /^(licen[cs]e|copying|notice|thirdpartynotices)/i.test(file)).sort()
    .map((file) => `\n${readFileSync(join(folder, file), 'utf8').replaceAll('\r\n', '\n').trim()}\n`).join('')
  if (!license && !text) throw new Error(`${name}: no licence`)
  return `\n${'='.repeat(80)}\n${name} ${version}, ${license}${source && `, ${source}`}\n${text}`
}

// The packages that are installed, also two versions of one beside each other.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { here } from '../processes.js'

// titled is a package's name and version, by the folder it is installed in.
export function titled(folder) {
  const { name, version } = JSON.parse(readFileSync(join(here, 'node_modules', folder, 'package.json'), 'utf8'))
  return `${name} ${version}`
}

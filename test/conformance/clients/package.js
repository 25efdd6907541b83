// The installed packages. Some are installed in two versions.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { here } from '../processes.js'

// titled returns the name and version of the package that is installed in a folder.
export function titled(folder) {
  const { name, version } = JSON.parse(readFileSync(join(here, 'node_modules', folder, 'package.json'), 'utf8'))
  return `${name} ${version}`
}

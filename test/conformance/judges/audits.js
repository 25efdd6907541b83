// The GraphQL over HTTP audits of graphql-http. A MUST or SHOULD that is not met is
// a failure. A MAY that is not met is only listed.
//
//	node judges/audits.js URL
import { pathToFileURL } from 'node:url'
import { serverAudits } from 'graphql-http'

export async function audits(url, { log = console.log } = {}) {
  const count = {}
  let failed = 0
  let passed = 0
  for (const { id, name, fn } of serverAudits({ url, fetchFn: fetch })) {
    const [level] = name.split(' ', 1)
    count[level] ??= { met: 0, all: 0 }
    count[level].all++
    const { status, reason } = await fn()
    if (status === 'ok') {
      count[level].met++
      passed++
      continue
    }
    if (level !== 'MAY') failed++
    log(`${id} is not met: ${name}: ${reason}`)
  }
  log(`${['MUST', 'SHOULD', 'MAY'].map((level) => `${count[level]?.met ?? 0} of ${count[level]?.all ?? 0} ${level}`).join(', ')}`)
  return { passed, failed }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const { passed, failed } = await audits(process.argv[2])
  console.log(`${passed} passed, ${failed} failed`)
  process.exit(failed > 0 ? 1 : 0)
}

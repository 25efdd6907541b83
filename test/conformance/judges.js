// The judges as cases: they check the server's responses for a chain that does
// not grow.
import { titled } from './clients/package.js'
import { audits } from './judges/audits.js'
import { introspection } from './judges/introspection.js'
import { oracle } from './judges/oracle.js'
import { http, legacy, modern } from './judges/oracle/transports.js'

// judged runs a judge and returns what the judge logged. If a check fails, it throws an error.
async function judged(judge, url, options) {
  const words = []
  const { failed } = await judge(url, { ...options, log: (line) => words.push(line) })
  if (failed > 0) throw new Error(words.join('\n'))
  return words.join('; ')
}

export default [
  {
    name: `${titled('graphql-http')}, audits`, phase: 'judge',
    run: ({ still }) => judged(audits, still.url),
  },
  {
    name: `${titled('graphql')}, ${titled('graphql-17')}, ${titled('@graphql-codegen/typescript')}, ${titled('typescript')}, the schema`, phase: 'judge',
    run: ({ still }) => judged(introspection, still.url),
  },
  {
    name: `${titled('graphql-17')}, random documents`, phase: 'judge', patience: 180_000,
    run: ({ still }) => judged(oracle, still.url, { seed: 1, documents: 6000, transports: [http, legacy, modern] }),
  },
]

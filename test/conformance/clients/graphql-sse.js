// graphql-sse, in its distinct connections mode: each operation is a POST request.
import { createClient } from 'graphql-sse'
import { titled } from './package.js'
import { into, once } from './results.js'

export const adapters = [
  {
    name: titled('graphql-sse'),
    protocol: 'SSE',
    onCut: 'repeats',
    open({ url }, { credentials, fetch, retry = true }) {
      const client = createClient({ url, headers: credentials, fetchFn: fetch, retryAttempts: retry ? 5 : 0 })
      const listen = (operation, sink) => client.subscribe(operation, into(sink))
      return { listen, ask: (operation) => once((sink) => listen(operation, sink)), close: () => client.dispose() }
    },
  },
]
